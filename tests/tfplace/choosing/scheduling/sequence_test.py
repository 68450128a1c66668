"""Edges make first come, first served start ops as wanted, and only they do."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose

from graphs.executor_model import depth_first
from tests.builders import Machine, Op, build_problem, random_problem
from tfplace.choosing.scheduling.anchors import anchors_of
from tfplace.choosing.scheduling.edges import with_order_edges
from tfplace.choosing.scheduling.list_schedules import by_longest_path, by_shard, path_to_end
from tfplace.choosing.scheduling.sequence import edges_in_turn, in_turn, sequence_edges
from tfplace.simulation.simulator import Simulator


def by_rank(problem, rank, device_of_op):
    """The schedule in which the ready op of the least rank starts first."""
    ranked = dataclasses.replace(problem, start_rank=np.array(rank, dtype=np.int32))
    return Simulator(ranked, 1).schedule(device_of_op)


def one_at_a_time(rng):
    """A random problem whose devices run one op at a time.

    Equal times make ties, which ranks decide and edges between ops of no length can't.
    """
    problem = random_problem(rng)
    slots = np.ones(problem.num_devices, dtype=np.int32)
    seconds = rng.random((problem.num_ops, problem.num_devices)) + 0.1
    return dataclasses.replace(problem, device_slots=slots, op_seconds=seconds)


def test_the_least_rank_starts_first():
    problem = build_problem([Op("a"), Op("b"), Op("c", 0.5)])
    schedule = by_rank(problem, [2, 1, 0], [1, 1, 1])
    assert schedule.op_start.tolist() == [1.5, 0.5, 0.0]


def test_an_op_that_would_start_too_early_waits_for_the_one_before_it():
    problem = build_problem([Op("a"), Op("b"), Op("c"), Op("d", inputs=("c:0",))])
    wanted = by_rank(problem, [1, 2, 0, 3], [1, 1, 1, 1])  # c a b d
    edges = sequence_edges(problem, wanted, anchors_of(problem))
    # d could start when c ends, before b, which waits for a.
    found = list(zip(edges.before.tolist(), edges.after.tolist(), strict=True))
    assert found == [(0, 1), (1, 3), (2, 0)]


def test_first_come_first_served_needs_no_edges():
    problem = build_problem([Op("a"), Op("b"), Op("c"), Op("d", inputs=("c:0",))])
    wanted = Simulator(problem, 1).schedule([1, 1, 1, 1])
    assert len(sequence_edges(problem, wanted, anchors_of(problem))) == 0


def test_ops_that_no_edge_can_hold_and_devices_of_several_slots_are_left_alone():
    ops = [Op("a", type="Const"), Op("b"), Op("c", type="Reshape"), Op("d")]
    problem = build_problem(ops, Machine(slots=(2, 1)))
    wanted = by_rank(problem, [3, 2, 1, 0], [1, 1, 1, 1])
    edges = sequence_edges(problem, wanted, anchors_of(problem))
    assert (edges.before.tolist(), edges.after.tolist()) == ([3], [1])
    wanted = by_rank(problem, [3, 2, 1, 0], [0, 0, 0, 0])
    assert len(sequence_edges(problem, wanted, anchors_of(problem))) == 0
    bodies = anchors_of(problem, np.array([0, 1, 0, 0], dtype=np.int32))
    wanted = by_rank(problem, [3, 2, 1, 0], [1, 1, 1, 1])
    assert len(sequence_edges(problem, wanted, bodies)) == 0


def test_what_waits_only_for_ops_that_no_edge_can_hold_is_held_itself():
    ops = [Op("a", 0.0, type="Reshape"), Op("b", inputs=("a:0",)), Op("c")]
    problem = build_problem(ops)
    wanted = by_rank(problem, [1, 2, 0], [1, 1, 1])  # c a b, though a and so b could come first
    edges = sequence_edges(problem, wanted, anchors_of(problem))
    assert (edges.before.tolist(), edges.after.tolist()) == ([2], [1])


@pytest.mark.parametrize("seed", range(40))
def test_with_edges_a_schedule_is_kept_to(seed):
    rng = np.random.default_rng(seed)
    problem = one_at_a_time(rng)
    device_of_op = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
    wanted = by_rank(problem, rng.permutation(problem.num_ops), device_of_op)
    edges = sequence_edges(problem, wanted, anchors_of(problem))
    edged = with_order_edges(problem, edges)
    schedule = Simulator(edged.problem, 1).schedule(edged.renumbered(device_of_op))
    assert_allclose(schedule.op_start, wanted.op_start[edged.op_at], rtol=1e-9)


def test_the_longest_path_counts_moves_between_devices():
    ops = [Op("a", outputs=(4,)), Op("b", 3.0), Op("c", 2.0, ("a:0",))]
    problem = build_problem(ops, Machine(latency=0.5, bandwidth=2.0))
    assert path_to_end(problem, np.array([0, 0, 1])).tolist() == [5.5, 3.0, 2.0]
    assert by_longest_path(problem, np.array([0, 0, 1])).tolist() == [0, 1, 2]
    assert by_longest_path(problem, np.array([0, 0, 0])).tolist() == [0, 1, 2]


def test_shards_go_one_after_the_other_and_backward_first():
    ops = [Op("f/shard_0"), Op("f/shard_1"), Op("b/shard_0", inputs=("f/shard_0:0",))]
    ops += [Op("b/shard_1", inputs=("f/shard_1:0",)), Op("w", inputs=("b/shard_0:0",))]
    assert by_shard(build_problem(ops), np.zeros(5, dtype=np.int32)).tolist() == [2, 4, 1, 3, 0]


@pytest.mark.parametrize("seed", range(20))
def test_with_every_edge_a_depth_first_executor_keeps_to_it_too(seed):
    rng = np.random.default_rng(seed)
    problem = one_at_a_time(rng)
    anchors, placement = anchors_of(problem), np.zeros(problem.num_ops, dtype=np.int32)
    wanted = Simulator(problem, 1).schedule(placement)
    executor = depth_first(problem.graph.op_types, problem.num_devices)
    edges = edges_in_turn(problem, placement, in_turn(wanted).tolist(), anchors)
    edged = with_order_edges(dataclasses.replace(problem, executor=executor), edges)
    found = np.empty(problem.num_ops)
    found[edged.op_at] = Simulator(edged.problem, 1).schedule(placement).op_start
    held = np.flatnonzero(anchors.may_hold)
    assert np.argsort(found[held]).tolist() == np.argsort(wanted.op_start[held]).tolist()
