"""Edges that bound how many shards a device has begun and not yet ended, as 1F1B does.

A device that is never idle while it could work goes forward with all shards before it gets the
first one back, and holds the activations of all. In a pipeline of K stages the i-th, from 0, has
enough to do with K - i of them; a device alone with one. So a shard begins on a device only when
the shard that many before it has ended there.
"""

from __future__ import annotations

import numpy as np

from graphs.problem import Problem
from tfplace.choosing.order.anchors import Anchors
from tfplace.choosing.order.edges import OrderEdges, order_edges
from tfplace.grouping.copies import shard_of_op
from tfplace.simulation.schedule import Schedule


def in_flight_edges(problem: Problem, schedule: Schedule, anchors: Anchors) -> OrderEdges:
    """The edges; none where no device works on several shards.

    Args:
      problem: of a split step.
      schedule: shard by shard: its first shard says which device comes when.
      anchors: where edges may begin and end.
    """
    shard, device = shard_of_op(problem), schedule.device_of_op
    works = anchors.is_real & (shard >= 0) & (schedule.op_end > schedule.op_start)
    if not works.any():
        return order_edges([], [])
    begins = {
        here: float(schedule.op_start[works & (device == here)].min())
        for here in np.unique(device[works]).tolist()
    }
    enters = works & ~_follows_its_own(problem, shard, device, works)
    before: list[int] = []
    after: list[int] = []
    for here, begin in begins.items():
        window = sum(other >= begin for other in begins.values())
        last = _last_of_each(works & anchors.may_hold & (device == here), shard, schedule)
        shards = sorted(last)
        for first, then in zip(shards, shards[window:], strict=False):
            entries = np.flatnonzero(enters & (device == here) & (shard == then))
            same_body = anchors.body_of_op[entries] == anchors.body_of_op[last[first]]
            before += [last[first]] * int(same_body.sum())
            after += entries[same_body].tolist()
    return order_edges(before, after)


def _last_of_each(where: np.ndarray, shard: np.ndarray, schedule: Schedule) -> dict[int, int]:
    """{shard: the op that ends last}."""
    ops = np.flatnonzero(where)
    ops = ops[np.argsort(schedule.op_end[ops], kind="stable")]
    return dict(zip(shard[ops].tolist(), ops.tolist(), strict=True))


def _follows_its_own(
    problem: Problem, shard: np.ndarray, device: np.ndarray, works: np.ndarray
) -> np.ndarray:
    """bool[N]: ops behind one that works for the same shard on the same device."""
    producer, user, _ = problem.graph.op_edges()
    near = (shard[producer] == shard[user]) & (device[producer] == device[user])
    producer, user = producer[near], user[near]
    order = np.argsort(user, kind="stable")  # ops are in a topological order
    works_here, follows = works.tolist(), [False] * problem.num_ops
    for source, target in zip(producer[order].tolist(), user[order].tolist(), strict=True):
        follows[target] = follows[target] or works_here[source] or follows[source]
    return np.array(follows)
