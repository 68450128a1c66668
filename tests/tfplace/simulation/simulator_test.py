"""Worked examples of the contract, section 6, and the reference on random problems."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import (
    Machine,
    Op,
    build_problem,
    chain,
    fan_out,
    random_executor,
    random_problem,
    two_towers,
    unrolled_lstm,
    with_executor,
)
from tests.reference_simulator import reference_run
from tfplace.simulation.schedule import memory_use
from tfplace.simulation.simulator import Simulator


def _run(problem, device_of_op):
    makespan, peaks = Simulator(problem, num_threads=1).run(np.array(device_of_op))
    return makespan, peaks.tolist()


def test_one_device_takes_the_sum():
    assert _run(chain(3, size=2), [1, 1, 1]) == (3.0, [0, 4])


def test_a_transfer_takes_latency_and_bytes_over_bandwidth():
    # 1 s, then 4 bytes at 2 bytes/s and 0.5 s of latency, then 1 s.
    machine = Machine(latency=0.5, bandwidth=2.0)
    assert _run(chain(2, size=4, machine=machine), [0, 1]) == (4.5, [4, 8])


def test_a_tensor_moves_once_for_all_its_users_on_a_device():
    schedule = Simulator(fan_out(4, size=3)).schedule(np.array([0, 1, 1, 1, 1, 1]))
    assert schedule.transfers.tensor.tolist() == [0]
    assert schedule.makespan == 1 + 3 + 4 + 1


def test_ready_ops_start_by_time_then_index():
    ops = [
        Op("slow", 2.0),
        Op("quick", 1.0),
        Op("late_low", 1.0, ("^slow",)),
        Op("early_high", 1.0, ("^quick",)),
        Op("early_highest", 1.0, ("^quick",)),
    ]
    schedule = Simulator(build_problem(ops, Machine(1, slots=2))).schedule(np.zeros(5))
    # At 1 s one slot is free: early_high; at 2 s: early_highest (ready at 1) before late_low.
    assert schedule.op_start.tolist() == [0, 0, 2, 1, 2]


def test_zero_second_ops_make_rounds_of_one_instant():
    ops = [Op("a", 0.0), Op("b", 0.0, ("^a",)), Op("c", 1.0), Op("d", 0.0, ("^b",))]
    schedule = Simulator(build_problem(ops, Machine(1))).schedule(np.zeros(4))
    # One slot: a, then b (index 1 goes before c, which waits since the same instant), then c.
    assert schedule.op_start.tolist() == [0, 0, 0, 1]
    assert schedule.makespan == 1.0


@pytest.mark.parametrize(
    ("communication", "makespan"),
    # At 1 s op0 queues 0→1, 0→2, 0→2 and then op1 1→0, 1→2, of 2 s each; far waits for the last.
    [("duplex", 10.0), ("sender", 8.0), ("half_duplex", 12.0), ("pairwise", 6.0)],
)
def test_channel_rules(communication, makespan):
    ops = [
        Op("op0", 1.0, outputs=(2, 2)),
        Op("op1", 1.0, outputs=(2, 2)),
        Op("near", 1.0, ("op0:0",)),
        Op("far", 1.0, ("op0:1", "op1:1")),
        Op("farther", 1.0, ("op0:0",)),
        Op("back", 1.0, ("op1:0",)),
    ]
    machine = Machine(3, communication=communication)
    schedule = Simulator(build_problem(ops, machine)).schedule(np.array([0, 1, 1, 2, 2, 0]))
    assert schedule.makespan == makespan


def test_queued_copies_are_held_from_their_transfers_start():
    # Two 4-byte tensors leave at 1 s; the second waits for the channel until 5 s and its user
    # needs it from 9 s to 10 s, the first's from 5 s to 6 s: never more than 8 bytes, at 5 s.
    ops = [Op("a", 1.0, outputs=(4, 4)), Op("b", 1.0, ("a:0",)), Op("c", 1.0, ("a:1",))]
    problem = build_problem(ops)
    assert _run(problem, [0, 1, 1]) == (10.0, [8, 8])
    uses = memory_use(problem, Simulator(problem).schedule(np.array([0, 1, 1])))
    assert uses[0].seconds.tolist() == [0, 5, 9]
    assert uses[0].bytes.tolist() == [8, 4, 0]
    assert uses[1].seconds.tolist() == [0, 1, 5, 6, 10]
    assert uses[1].bytes.tolist() == [0, 4, 8, 4, 0]


def test_memory_of_persistent_temp_unused_and_aliased_outputs():
    ops = [
        Op("variable", 1.0, outputs=(8,), alloc=(0,), persistent=8),
        Op("worker", 1.0, ("variable:0",), outputs=(5, 7), temp=100),
        Op("reader", 1.0, ("worker:0",), outputs=()),
    ]
    # While worker runs: 8 persistent, 5 + 7 outputs, 100 temp; after it 7 and 100 are free.
    assert _run(build_problem(ops, Machine(1)), [0, 0, 0]) == (3.0, [120])


def test_frees_come_before_allocations():
    # op1 frees op0's output at 2 s, when op2 allocates: never more than two of them.
    assert _run(chain(4, size=10, machine=Machine(1)), [0] * 4) == (4.0, [20])


def test_no_kernel_is_infinite():
    ops = [Op("a", (1.0, np.inf), persistent=3), Op("b", (1.0, 1.0), ("^a",))]
    problem = build_problem(ops)
    assert _run(problem, [1, 0]) == (np.inf, [0, 3])
    with pytest.raises(ValueError, match="an op never ends"):
        Simulator(problem).schedule(np.array([1, 0]))


def test_an_empty_problem_takes_no_time():
    assert _run(build_problem([]), []) == (0.0, [0, 0])


@pytest.mark.parametrize("placement", [[0, 0, 2], [0, -1, 0], [0, 0], [[0, 0, 0]]])
def test_a_bad_placement_is_an_error(placement):
    with pytest.raises(ValueError, match="simulating a placement"):
        Simulator(chain(3)).run(np.array(placement))


def test_a_bad_problem_is_an_error():
    problem = chain(3)
    with pytest.raises(ValueError, match="op_seconds is negative"):
        Simulator(dataclasses.replace(problem, op_seconds=problem.op_seconds - 2))


def test_many_are_as_one_each_in_any_number_of_threads():
    problem = two_towers(3, size=2)
    placements = np.random.default_rng(0).integers(0, 2, (7, problem.num_ops)).astype(np.int32)
    one = Simulator(problem, num_threads=1)
    for threads in (1, 2, 16):
        makespans, peaks = Simulator(problem, num_threads=threads).run_many(placements)
        for row, placement in enumerate(placements):
            makespan, peak = one.run(placement)
            assert (makespans[row], peaks[row].tolist()) == (makespan, peak.tolist())
    assert [x.shape for x in one.run_many(placements[:0])] == [(0,), (0, 2)]


def test_threads_do_not_disturb_one_another():
    problem = unrolled_lstm(2, 3)
    rng = np.random.default_rng(0)
    placements = rng.integers(0, 2, (40, problem.num_ops)).astype(np.int32)
    simulator = Simulator(problem, num_threads=2)
    wanted = [simulator.run(placement)[0] for placement in placements]
    with ThreadPoolExecutor(4) as pool:
        alone = pool.map(lambda placement: simulator.run(placement)[0], placements)
        together = pool.submit(simulator.run_many, placements)
        assert list(alone) == wanted
        assert together.result()[0].tolist() == wanted


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_agrees_with_the_reference(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, max_ops=14)
    if seed % 2:
        problem = random_executor(rng, problem)
    placement = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
    makespan, peaks = reference_run(problem, placement.tolist())
    simulator = Simulator(problem, num_threads=1)
    for _ in range(2):  # scratch is used again
        seconds, peak_bytes = simulator.run(placement)
        assert seconds == pytest.approx(makespan, rel=1e-9, abs=0)
        assert peak_bytes.tolist() == peaks
    schedule = simulator.schedule(placement)
    assert [int(use.bytes.max()) for use in memory_use(problem, schedule)] == peaks


def test_an_executor_works_depth_first_and_runs_cheap_ops_at_once():
    ops = [
        Op("root", 1.0),
        Op("low", 1.0, ("root:0",)),
        Op("cheap", 1.0, ("root:0",), type="Identity"),
        Op("high", 1.0, ("root:0",)),
        Op("after_high", 1.0, ("high:0",)),
        Op("other_root", 1.0),
    ]
    problem = with_executor(build_problem(ops, Machine(1)), inline=["Identity"])
    schedule = Simulator(problem).schedule(np.zeros(6))
    # other_root waits at the back since 0 s; after_high goes before low, which waits since 1 s.
    assert schedule.op_start.tolist() == [0, 4, 1, 2, 3, 5]


def test_an_executor_goes_by_turns_where_they_are_known():
    ops = [
        Op("root", 1.0),
        Op("first", 1.0, ("root:0",)),
        Op("second", 1.0, ("root:0",)),
        Op("other_root", 1.0),
    ]
    problem = with_executor(build_problem(ops, Machine(1)), turn=[[1, 3, 2, 0]])
    schedule = Simulator(problem).schedule(np.zeros(4))
    # By index: root, second, first, other_root.
    assert schedule.op_start.tolist() == [1, 2, 3, 0]


def test_of_several_orders_the_mean_step_time_counts():
    ops = [Op("a", 1.0), Op("b", 2.0), Op("after_a", 4.0, ("a:0",)), Op("after_b", 1.0, ("b:0",))]
    problem = build_problem(ops, Machine(2, latency=0.0))
    placement = np.array([0, 0, 1, 1], dtype=np.int32)

    def seconds(*turns):
        return Simulator(with_executor(problem, turn=turns)).run(placement)[0]

    forward, backward = [0, 1, 2, 3], [1, 0, 2, 3]  # after_a from 1 s on, or from 3 s on
    assert (seconds(forward), seconds(backward)) == (6.0, 7.0)
    assert seconds(forward, backward) == 6.5
    schedule = Simulator(with_executor(problem, turn=[backward, forward])).schedule(placement)
    assert (schedule.makespan, schedule.op_start[2]) == (7.0, 3.0)


def test_a_send_waits_its_turn_and_takes_its_senders_slot():
    ops = [Op("a", 1.0, outputs=(4,)), Op("far", 1.0, ("a:0",)), Op("near", 2.0, ("a:0",))]
    # A transfer alone takes 2 s + 4 bytes at 1 byte/s: of that 0.5 s + 4/4 s are the sender's
    # work and 1 s + 4/2 s the receiver's; the wire has 0.5 s + 4/4 s left.
    problem = build_problem(ops, Machine(2, latency=2.0))
    problem = with_executor(problem, send=(0.5, 0.25), receive=(1.0, 0.5))
    schedule = Simulator(problem).schedule(np.array([0, 1, 0]))
    # near (higher index) runs from 1 to 3 s, then the send until 4.5 s; the tensor leaves its
    # channel at 5.5 s and is there at 6 s; far takes 1 s and the 3 s that its tensor brought.
    assert schedule.op_start.tolist() == [0, 6, 1]
    assert schedule.op_end.tolist() == [1, 10, 3]
    assert schedule.transfers.start.tolist() == [4.5]
    assert schedule.transfers.release.tolist() == [5.5]
    assert schedule.transfers.arrival.tolist() == [6.0]


def test_a_second_thread_makes_a_send_before_the_chain_goes_on():
    ops = [
        Op("a", 1.0),
        Op("cheap", 1.0, ("a:0",), type="Identity"),
        Op("near", 2.0, ("cheap:0",)),
        Op("far", 1.0, ("a:0",)),
    ]
    problem = build_problem(ops, Machine(2, latency=0.0))
    placement = np.array([0, 0, 0, 1])

    def starts(*sends_first):
        executor = with_executor(
            problem, send=(0.5, 0.0), inline=["Identity"], sends_first=sends_first or None
        )
        return Simulator(executor).schedule(placement).op_start.tolist()

    # One thread sends when nothing else is left to do: at 4 s, or at 1 s before all else.
    assert starts() == starts(False, True) == [0.0, 1.0, 2.0, 4.5]
    assert starts(True, False) == [0.0, 1.5, 2.5, 1.5]


def test_what_a_received_tensor_makes_ready_waits_at_the_back():
    ops = [
        Op("source", 1.0, outputs=(0,)),
        Op("root", 1.0),
        Op("of_received", 1.0, ("source:0",)),
        Op("next", 1.0, ("root:0",)),
        Op("last", 1.0, ("next:0",)),
    ]
    problem = with_executor(build_problem(ops, Machine(2)), receive=(0.0, 0.0))
    schedule = Simulator(problem).schedule(np.array([0, 1, 1, 1, 1]))
    assert schedule.op_start.tolist() == [0, 0, 3, 1, 2]


def test_an_idle_device_works_off_what_it_received():
    ops = [
        Op("first", 1.0, outputs=(0,)),
        Op("second", 1.0, ("^first",), outputs=(0,)),
        Op("third", 3.0, ("^second",), outputs=(0,)),
        Op("far", 1.0, ("first:0", "second:0", "third:0")),
    ]
    # Tensors are there at 1, 2 and 5 s and owe 2 s each: at 2 s 1 + 2 are left, at 5 s 0 + 2.
    problem = with_executor(build_problem(ops, Machine(2)), receive=(2.0, 0.0))
    schedule = Simulator(problem).schedule(np.array([0, 0, 0, 1]))
    assert (schedule.op_start[3], schedule.op_end[3]) == (5.0, 8.0)


def test_an_op_that_starts_beside_a_busy_device_takes_longer():
    ops = [
        Op("here", 4.0),
        Op("beside", 2.0, ("^start",)),
        Op("alone", 2.0, ("^beside", "^here")),
        Op("start", 1.0),
    ]
    ops = [ops[3], *ops[:3]]
    problem = build_problem(ops, Machine(2))
    slowed = with_executor(problem, slowdown=[0.5, 0.0, 0.5, 0.25])
    schedule = Simulator(slowed).schedule(np.array([1, 0, 1, 1]))
    # start: device 0 is busy from 0 s on, as devices start in order; here itself found none.
    assert schedule.op_start.tolist() == [0.0, 0.0, 1.5, 4.5]
    assert schedule.op_end.tolist() == [1.5, 4.0, 4.5, 6.5]
    # Of two that share memory one is busy: half of the slowdown.
    three = build_problem(ops[:2], Machine(3))
    three = with_executor(three, slowdown=[0.5, 0.0])
    assert Simulator(three).schedule(np.array([1, 0])).op_end.tolist() == [1.25, 4.0]
