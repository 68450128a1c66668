"""Variables just in time: their reads are held back, so that what is needed first is sent first.

All reads of variables could start at 0. What they send to other devices then fills the links, first
come, first served, and what is computed waits behind values that nobody needs yet. So each send is
given the latest time at which it arrives in time for its first user, later ones first; and its
read waits for the last op on its device that ends before that. Over several hosts, where a value
goes from one shard to the next, the time of its first user is what counts: each sends to one other
alone, and so in the order in which it has begun.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.choosing.scheduling.anchors import Anchors, Bools
from tfplace.choosing.scheduling.edges import OrderEdges, order_edges
from tfplace.simulation.schedule import Schedule


def with_free_reads(problem: Problem, anchors: Anchors) -> Problem:
    """The problem as if reads were sent in no time: by its schedule, when is each one needed?

    What hands a read on from shard to shard is sent in no time, too.
    """
    graph = problem.graph
    is_free = anchors.is_read | anchors.is_relay
    moved = np.where(is_free[graph.tensor_producer], 0, graph.tensor_bytes)
    return dataclasses.replace(problem, graph=dataclasses.replace(graph, tensor_bytes=moved))


def late_read_edges(
    problem: Problem, schedule: Schedule, anchors: Anchors, ahead_seconds: float
) -> OrderEdges:
    """Edges that hold reads back.

    Args:
      problem: with what reads really send.
      ahead_seconds: how much earlier than at the last moment a value is sent.
    """
    latest = _latest_sends(problem, schedule, anchors)
    device, bodies = schedule.device_of_op, anchors.body_of_op
    # What waits itself for a read that will be held back does not run when the schedule says.
    is_early = _held_until(problem, latest) <= schedule.op_start
    may_hold = anchors.may_hold & (schedule.op_end > schedule.op_start) & is_early
    before: list[int] = []
    after: list[int] = []
    for where in np.unique(np.stack([device, bodies])[:, list(latest)], axis=1).T:
        here = (device == where[0]) & (bodies == where[1])
        holders = np.flatnonzero(here & may_hold)
        holders = holders[np.argsort(schedule.op_end[holders], kind="stable")]
        ends = schedule.op_end[holders]
        last = (-1, -1)
        for seconds, read in sorted((s - ahead_seconds, r) for r, s in latest.items() if here[r]):
            holder = int(np.searchsorted(ends, seconds, side="right")) - 1
            if holder >= 0:
                before.append(int(holders[holder]))
                after.append(read)
            if holder == last[0] and last[1] >= 0:
                # Let go together, the one that is needed first goes first.
                before.append(last[1])
                after.append(read)
            last = (holder, read)
    return order_edges(before, after)


def _held_until(problem: Problem, latest: Mapping[int, float]) -> FloatArray:
    """f8[N]: the time of the latest read that each op waits for."""
    producer, user, _ = problem.graph.op_edges()
    until = [latest.get(op, 0.0) for op in range(problem.num_ops)]
    order = np.argsort(user, kind="stable")  # ops are in a topological order
    for source, target in zip(producer[order].tolist(), user[order].tolist(), strict=True):
        until[target] = max(until[target], until[source])
    return np.array(until)


def _latest_sends(problem: Problem, schedule: Schedule, anchors: Anchors) -> dict[int, float]:
    """{read: when it has to end so that what it sends arrives in time}, last needed first.

    Where reads are handed on from shard to shard, how long that takes is left to `ahead_seconds`.
    """
    if anchors.is_relay.any():
        return _needed_reads(problem, schedule, anchors)
    graph, device = problem.graph, schedule.device_of_op
    # f8[T, D]: when a tensor's first user on a device starts; inf where there is none.
    needed = np.full((graph.num_tensors, problem.num_devices), np.inf)
    where = (graph.use_tensor, device[graph.use_op])
    np.minimum.at(needed, where, schedule.op_start[graph.use_op])
    # A user beside the variable (its weight decay) can wait as long as those elsewhere.
    needed[np.arange(graph.num_tensors), device[graph.tensor_producer]] = np.inf
    free_until = np.full(int(problem.link_channels.max(initial=-1)) + 1, np.inf)
    return _latest_of(problem, device, needed, anchors.is_read, free_until)


def _needed_reads(problem: Problem, schedule: Schedule, anchors: Anchors) -> dict[int, float]:
    """{read that is handed on: when the first that reads it in the end starts}."""
    graph, is_relay = problem.graph, anchors.is_relay
    source = graph.tensor_producer[graph.use_tensor]
    needed = np.full(problem.num_ops, np.inf)
    is_handed_on = np.zeros(problem.num_ops, dtype=bool)
    is_handed_on[source[is_relay[graph.use_op]]] = True
    uses = np.flatnonzero(is_relay[source] | is_handed_on[source])
    for use in uses[np.argsort(-source[uses], kind="stable")].tolist():  # users come before makers
        maker, user = int(source[use]), int(graph.use_op[use])
        if is_relay[user]:
            needed[maker] = min(needed[maker], needed[user])
        elif is_relay[maker]:
            needed[maker] = min(needed[maker], float(schedule.op_start[user]))
    reads = np.flatnonzero(anchors.is_read & is_handed_on & np.isfinite(needed))
    return {int(read): float(needed[read]) for read in reads[np.argsort(-needed[reads])]}


def _latest_of(
    problem: Problem, device: IntArray, needed: FloatArray, is_sender: Bools, free_until: FloatArray
) -> dict[int, float]:
    """The same for some ops, by when their tensors are needed f8[T, D]; channels are taken."""
    graph = problem.graph
    tensors = np.flatnonzero(is_sender[graph.tensor_producer])
    tensors = tensors[np.argsort(-needed[tensors].min(axis=1), kind="stable")]
    latest: dict[int, float] = {}
    for tensor in tensors.tolist():
        read = int(graph.tensor_producer[tensor])
        source = int(device[read])
        targets = np.flatnonzero(np.isfinite(needed[tensor])).tolist()
        if not targets:
            continue
        end = float(needed[tensor].min()) - float(problem.link_latency[source, targets].max())
        for target in reversed(targets):  # they leave in device order
            seconds = float(
                graph.tensor_bytes[tensor] / problem.link_bytes_per_second[source, target]
            )
            channels = [c for c in problem.link_channels[source, target].tolist() if c >= 0]
            end = min([end, *(float(free_until[c]) for c in channels)]) - seconds
            free_until[channels] = end
        latest[read] = min(end, latest.get(read, np.inf))
    return latest
