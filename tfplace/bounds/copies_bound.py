"""The bounds of lower_bound.py for a step that is known by one copy of each op."""

from __future__ import annotations

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray, OpGraph
from graphs.problem import Problem
from tfplace.bounds.load_bound import best_weights, load_of, may_fit
from tfplace.bounds.lower_bound import NUM_WEIGHTS, ROUNDING, heads_and_tails
from tfplace.bounds.network_bound import network_bound
from tfplace.bounds.relaxation import DeviceClasses, device_classes
from tfplace.bounds.step_roles import StepRoles
from tfplace.bounds.travel_bound import travel_bound
from tfplace.bounds.window_bound import window_bound
from tfplace.grouping.copies import WHOLE


@dataclasses.dataclass(frozen=True)
class Copies:
    """What the ops of a split step take.

    Attributes:
      step: one copy of each of the R roles, what each takes at least.
      work: f8[R, D] what all copies take together.
      sums: f8[X, D] what other ops take, anywhere and at any time.
      is_read: whether its own shape is known, and not that of another number of shards.
    """

    step: Problem
    work: FloatArray
    sums: FloatArray
    is_read: bool


def copies_bound(copies: Copies, roles: StepRoles, lower: StepRoles) -> float:
    """Seconds of every placement, at least; inf where it is proven that none can run.

    Args:
      copies: what its ops take.
      roles: of a step of as many shards, or of more; of fewer, where copies' tensors have no bytes.
      lower: of a step of as many shards, or of fewer.
    """
    step = copies.step
    alone = device_classes(step)
    _, own_weights = best_weights(load_of(alone, step.graph, np.ones(step.num_ops, dtype=bool)))
    head, tail, path = heads_and_tails(step, alone, own_weights[:NUM_WEIGHTS])
    classes, graph = _with_sums(copies)
    everything = load_of(classes, graph, np.ones(graph.num_ops, dtype=bool))
    if np.isinf(classes.seconds).all(axis=1).any() or not may_fit(everything) or np.isinf(path):
        return float("inf")
    load, weights = best_weights(everything)
    soonest = head + alone.seconds.min(axis=1)
    free = np.zeros(len(copies.sums))
    window = window_bound(
        classes, graph, np.append(head, free), np.append(tail, free), weights[:NUM_WEIGHTS]
    )
    own = dataclasses.replace(classes, seconds=classes.seconds[: step.num_ops])
    travel = travel_bound(own, step, roles.sharing, head, tail, is_direct=copies.is_read)
    bound = float(max(path, load, window, travel))
    network = network_bound(_with_bytes_of(lower, roles), copies.work, soonest, bound)
    return max(bound, network) * (1.0 - ROUNDING)


def _with_bytes_of(lower: StepRoles, base: StepRoles) -> StepRoles:
    """The base; its copies' tensors hold together what those of the least number of shards do.

    A tensor has a constant and a share of the entries, so that more copies hold no less.
    """
    if base is lower:
        return base
    graph, theirs = base.step.graph, lower.step.graph
    least: dict[tuple[int, int], int] = {}
    made_by = lower.role_of_op[theirs.tensor_producer].tolist()
    for *key, size in zip(
        made_by, theirs.tensor_output.tolist(), theirs.tensor_bytes.tolist(), strict=True
    ):
        least[*key] = min(size, least.get((*key,), size))
    role_there = lower.of_roles(base.roles)[base.role_of_op[graph.tensor_producer]].tolist()
    known = zip(role_there, graph.tensor_output.tolist(), strict=True)
    together = lower.num_shards * np.array([least.get(key, 0) for key in known], dtype=np.int64)
    of_copy = base.shard[graph.tensor_producer] != WHOLE
    sizes = np.minimum(graph.tensor_bytes, together // base.num_shards)
    graph = dataclasses.replace(graph, tensor_bytes=np.where(of_copy, sizes, graph.tensor_bytes))
    return dataclasses.replace(base, step=dataclasses.replace(base.step, graph=graph))


def _with_sums(copies: Copies) -> tuple[DeviceClasses, OpGraph]:
    """The work of a step and of sums that use nothing: seconds by class, and who lies where."""
    step, graph, count = copies.step, copies.step.graph, len(copies.sums)
    nothing = np.zeros(count, dtype=np.int64)
    graph = dataclasses.replace(
        graph,
        op_names=[*graph.op_names, *[""] * count],
        op_types=[*graph.op_types, *[""] * count],
        op_persistent_bytes=np.append(graph.op_persistent_bytes, nothing),
        op_temp_bytes=np.append(graph.op_temp_bytes, nothing),
        colocation_group=np.append(graph.colocation_group, np.full(count, -1, dtype=np.int32)),
    )
    together = dataclasses.replace(
        step,
        graph=graph,
        op_seconds=np.concatenate([copies.work, copies.sums]),
        pinned_device=np.append(step.pinned_device, np.full(count, -1, dtype=np.int32)),
    )
    return device_classes(together), graph
