"""The path bound: below the schedule of every placement, op by op, and tight by each argument."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem, chain, diamond
from tests.tfplace.bounds.brute_force import optimum_seconds, small_problems, some_schedules
from tfplace.bounds.enclosed_work import EnclosedWork
from tfplace.bounds.load_bound import DualWeights
from tfplace.bounds.lower_bound import heads_and_tails, soonest_ends
from tfplace.bounds.relaxation import device_classes, forward_edges
from tfplace.simulation.simulator import Simulator

NOTHING_ENCLOSED = EnclosedWork(np.zeros(0, dtype=np.int64), np.zeros((0, 0)))


def _ends(problem: Problem) -> FloatArray:
    """f8[N, K] by arguments 1 to 3."""
    group = problem.graph.colocation_group.astype(np.int64)
    return soonest_ends(device_classes(problem), forward_edges(problem), group, NOTHING_ENCLOSED)


def _path(problem: Problem) -> float:
    """The bound of all four arguments, with all classes weighed alike."""
    return heads_and_tails(problem, device_classes(problem), [_even_weights(problem)])[2]


def _even_weights(problem: Problem) -> DualWeights:
    classes = device_classes(problem)
    slots = classes.slots * classes.num_devices
    return DualWeights(np.full(len(slots), 1.0 / slots.sum()), np.zeros(len(slots)))


@settings(max_examples=120, deadline=None)
@given(small_problems(may_be_stuck=False))
def test_no_schedule_ends_an_op_sooner_or_leaves_less_after_it(problem: Problem) -> None:
    classes, ends = device_classes(problem), _ends(problem)
    head, tail, path = heads_and_tails(problem, classes, [_even_weights(problem)])
    for schedule in some_schedules(problem):
        late = 1e-9 * (1.0 + schedule.makespan)
        kind = classes.class_of_device[schedule.device_of_op]
        assert (schedule.op_end >= ends[np.arange(len(kind)), kind] - late).all()
        assert (schedule.op_start >= head - late).all()
        assert (schedule.makespan - schedule.op_end >= tail - late).all()
        assert schedule.makespan >= path - late


def test_a_chain_takes_its_length() -> None:
    np.testing.assert_array_equal(_ends(chain(3)), [[1.0], [2.0], [3.0]])
    problem = chain(3)
    head, tail, path = heads_and_tails(problem, device_classes(problem), [_even_weights(problem)])
    assert (head.tolist(), tail.tolist(), path) == ([0.0, 1.0, 2.0], [2.0, 1.0, 0.0], 3.0)


def test_an_input_is_made_here_or_moved() -> None:
    # a takes 1 s on the CPU and 5 on the GPU, b 4 and 1 s; the tensor between them 2 s.
    ops = [Op("a", (1.0, 5.0), outputs=(2,)), Op("b", (4.0, 1.0), ("a:0",))]
    problem = build_problem(ops)
    # On the CPU b follows a at once; on the GPU a's tensor comes at 1 + 2, not at 5.
    np.testing.assert_array_equal(_ends(problem), [[1.0, 5.0], [5.0, 4.0]])
    assert _path(problem) == optimum_seconds(problem) == 4.0


def test_free_links_leave_the_critical_path() -> None:
    problem = diamond(machine=Machine(2, bandwidth=np.inf))
    np.testing.assert_array_equal(_ends(problem), [[1.0], [2.0], [2.0], [3.0]])
    assert _path(problem) == optimum_seconds(problem) == 3.0


def test_dear_links_make_branches_queue() -> None:
    # Two branches of a second each on one device, or ten seconds for a branch's result.
    problem = diamond(size=1, machine=Machine(2, bandwidth=0.1))
    np.testing.assert_array_equal(_ends(problem), [[1.0], [2.0], [2.0], [4.0]])
    assert _path(problem) == optimum_seconds(problem) == 4.0


def test_branches_queue_until_a_transfer_is_cheaper() -> None:
    # All on one device: 4 s. One branch on the device of the join, which top's tensor and the other
    # branch's result reach after half a second each: 1 + 0.5 + 1 + 1 s.
    problem = diamond(machine=Machine(2, latency=0.5, bandwidth=np.inf))
    assert _path(problem) == optimum_seconds(problem) == 3.5


def test_colocated_branches_queue_whatever_the_links_do() -> None:
    ops = [Op("a", 1.0, colocation=0), Op("b", 2.0, colocation=0)]
    ops.append(Op("c", 1.0, ("a:0", "b:0"), colocation=0))
    problem = build_problem(ops, Machine(2, bandwidth=np.inf))
    np.testing.assert_array_equal(_ends(problem), [[1.0], [2.0], [4.0]])


def test_slots_let_branches_run_side_by_side() -> None:
    problem = diamond(machine=Machine(2, bandwidth=0.1, slots=2))
    assert _path(problem) == optimum_seconds(problem) == 3.0


def _running_sum(size: int, num_terms: int = 10) -> list[Op]:
    """1 s a term, 1 s an addition; `size` bytes of each term and sum."""
    ops = []
    for index in range(num_terms):
        ops.append(Op(f"term{index}", outputs=(size,)))
        inputs = (f"term{index}:0",) if not index else (f"sum{index - 1}:0", f"term{index}:0")
        ops.append(Op(f"sum{index}", inputs=inputs, outputs=(size,)))
    return ops


@pytest.mark.parametrize("rule", ["duplex", "sender", "half_duplex", "pairwise"])
def test_the_bound_of_a_long_sum_holds_under_every_channel_rule(rule: str) -> None:
    machine = Machine(3, bandwidth=2.0, communication=rule)
    problem = build_problem(_running_sum(3, num_terms=8), machine)
    placements = np.random.default_rng(5).integers(0, 3, (3000, 16)).astype(np.int32)
    assert _path(problem) <= Simulator(problem, num_threads=1).run_many(placements)[0].min()


def test_an_input_that_is_on_the_path_as_well_counts_once() -> None:
    # a, b, c one after another on one device: any output takes 100 s to move. c takes a's, too.
    ops = [Op("a", outputs=(100,)), Op("b", 1.0, ("a:0",), (100,)), Op("c", 1.0, ("a:0", "b:0"))]
    problem = build_problem(ops, Machine(2, bandwidth=1.0))
    np.testing.assert_array_equal(_ends(problem), [[1.0], [2.0], [3.0]])


def test_no_device_of_a_class_means_no_end_there() -> None:
    ops = [Op("a", (1.0, np.inf)), Op("b", (2.0, 1.0), ("a:0",))]
    np.testing.assert_array_equal(_ends(build_problem(ops)), [[1.0, np.inf], [3.0, 2.0]])
