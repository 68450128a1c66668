"""What is held when, on graphs small enough to work out by hand."""

import numpy as np

from tests.builders import Machine, Op, build_problem, fan_out
from tfplace.simulation.schedule import held_intervals, memory_use
from tfplace.simulation.simulator import Simulator


def _held(problem, placement):
    schedule = Simulator(problem, num_threads=1).schedule(np.array(placement))
    held = held_intervals(problem, schedule)
    names = problem.graph.op_names
    return sorted(
        (names[op], device, start, end, size)
        for op, device, start, end, size in zip(
            held.op.tolist(),
            held.device.tolist(),
            held.start.tolist(),
            held.end.tolist(),
            held.bytes.tolist(),
            strict=True,
        )
        if size and end > start
    )


def test_an_output_is_held_until_its_last_local_user_ends_and_its_copies_are_there():
    ops = [
        Op("source", 1.0, outputs=(4,), temp=9),
        Op("near", 1.0, ("source:0",), outputs=(5,)),
        Op("far", 2.0, ("source:0",), outputs=()),
    ]
    # The copy leaves at 1 s and is there at 5 s; it stays until far ends at 7 s.
    assert _held(build_problem(ops), [0, 0, 1]) == [
        ("near", 0, 1.0, 2.0, 5),  # nobody uses it
        ("source", 0, 0.0, 1.0, 9),  # its temporary buffer
        ("source", 0, 0.0, 5.0, 4),
        ("source", 1, 1.0, 7.0, 4),
    ]


def test_one_copy_serves_all_users_on_a_device():
    held = _held(fan_out(2, size=3, machine=Machine(2, slots=2)), [0, 1, 1, 1])
    assert held == [("source", 0, 0.0, 4.0, 3), ("source", 1, 1.0, 5.0, 3)]


def test_persistent_bytes_are_there_from_the_start_and_changes_that_cancel_are_left_out():
    ops = [
        Op("variable", 1.0, outputs=(8,), alloc=(0,), persistent=8),
        Op("first", 1.0, ("variable:0",), outputs=(6,)),
        Op("second", 1.0, ("first:0",), outputs=(6,)),
    ]
    problem = build_problem(ops, Machine(1))
    [use] = memory_use(problem, Simulator(problem, num_threads=1).schedule(np.zeros(3)))
    assert use.seconds.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert use.bytes.tolist() == [8, 14, 20, 8]


def test_a_buffer_is_held_until_the_last_user_of_all_that_shares_it():
    ops = [
        Op("made", 1.0, outputs=(4,)),
        Op("shaped", 1.0, ("made:0",), (4,), alloc=(0,), shares=("made:0",)),
        Op("same", 1.0, ("shaped:0",), (4,), alloc=(0,), shares=("shaped:0",)),
        Op("near", 1.0, ("same:0",), outputs=()),
        Op("far", 1.0, ("shaped:0",), (4,), alloc=(0,), shares=("shaped:0",)),
        Op("farther", 3.0, ("far:0",), outputs=()),
    ]
    # shaped ends at 2 s and is on device 1 at 6 s; made stays for it, though near ends at 4 s.
    # The copy there is what far hands on: it stays until farther ends at 10 s.
    assert _held(build_problem(ops), [0, 0, 0, 0, 1, 1]) == [
        ("made", 0, 0.0, 6.0, 4),
        ("shaped", 1, 2.0, 10.0, 4),
    ]


def test_a_buffer_is_taken_over_only_where_nothing_else_needs_it():
    ops = [
        Op("made", 1.0, outputs=(4,)),
        Op("kept", 1.0, ("made:0",), (4,), shares=("?made:0",)),  # late needs made
        Op("taken", 1.0, ("kept:0",), (4,), shares=("?kept:0",)),
        Op("late", 1.0, ("made:0", "taken:0"), (4,), shares=("?made:0",)),
        Op("last", 1.0, ("late:0",), outputs=()),
    ]
    assert _held(build_problem(ops, Machine(1)), [0] * 5) == [
        ("kept", 0, 1.0, 4.0, 4),
        ("made", 0, 0.0, 5.0, 4),
    ]


def test_what_is_fed_or_fetched_is_kept_and_never_taken_over():
    ops = [
        Op("fed", 1.0, outputs=(4,), shares=("fed:0",)),
        Op("next", 1.0, ("fed:0",), (4,), shares=("?fed:0",)),
        Op("other", 1.0, ("next:0",), outputs=(4,)),
    ]
    assert _held(build_problem(ops, Machine(1)), [0] * 3) == [
        ("fed", 0, 0.0, np.inf, 4),
        ("next", 0, 1.0, 3.0, 4),
        ("other", 0, 2.0, 3.0, 4),
    ]
