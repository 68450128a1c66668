"""Op seconds out of real runs, on devices that are present."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import Device
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.pricing.costs import Costs, Provenance
from tfplace.preparing.node_seconds import TracedNodes

BUSY_SHARE = 0.25
"""Where others used more of this machine's CPU time, traces are doubtful and not kept."""
SMALL_SECONDS = 1e-5
"""What is priced below takes as long to start, or longer."""


def device_kind(device: Device) -> tuple[object, ...]:
    """Devices with equal figures and on equal hosts are traced once."""
    return (device.type, device.architecture, device.cores, device.slots,
            device.bandwidth_bytes_per_second, device.host)  # fmt: skip


def with_traced_seconds(
    costs: Costs,
    traced: Mapping[tuple[object, ...], TracedNodes],
    alone_seconds: Mapping[tuple[object, ...], FloatArray],
    op_types: Sequence[str],
    op_of_node: IntArray,
    devices: Sequence[Device],
) -> Costs:
    """Replaces analytic seconds by traced ones, device kind by device kind.

    A node that the traced run holds but never ran is priced as Grappler does, scaled by what
    traced nodes of its op type show there (all of them, where none of its type was traced), plus
    what such a kernel takes to start, and the executor's share.

    Args:
      costs: analytic ones of N ops on D devices, kept for kinds that were not traced.
      traced: {kind: what its traces say}, at least one.
      alone_seconds: {kind: f8[nodes] analytic seconds}.
      op_types: [nodes] of the flat graph.
      op_of_node: i4[nodes] the op that each node is in.

    Returns:
      Costs with source "measured", or "mixed" where a kind was not traced or an op was not, and
      the ops' order of the first kind, if the step itself ran.
    """
    num_ops = len(costs.op_seconds)
    op_seconds = costs.op_seconds.copy()
    provenance = np.full(op_seconds.shape, Provenance.ANALYTIC, dtype=np.int8)
    for d, device in enumerate(devices):
        kind = device_kind(device)
        if kind not in traced:
            continue
        seconds, known = _priced(traced[kind], alone_seconds[kind], op_types)
        here = np.isfinite(costs.op_seconds[:, d])
        op_seconds[here, d] = np.bincount(op_of_node, seconds, num_ops)[here]
        # A unit with a scaled node is scaled; else it is what its best known node is.
        np.maximum.at(provenance[:, d], op_of_node, known)
        provenance[op_of_node[known == Provenance.SCALED], d] = Provenance.SCALED
    first = next(iter(traced.values()))
    was_seen = provenance[np.isfinite(op_seconds)] >= Provenance.ABSENT
    return dataclasses.replace(
        costs,
        op_seconds=op_seconds,
        source="measured" if was_seen.all() else "mixed" if was_seen.any() else costs.source,
        covered=costs.covered | (provenance >= Provenance.ABSENT).any(axis=1),
        notes=(*costs.notes, *_notes(list(traced.values()))),
        provenance=provenance,
        wall_time_coverage=min((n.wall_time_coverage for n in traced.values()), default=None),
        op_turn=None if first.is_by_unsplit else op_turn(first.place, op_of_node, num_ops),
    )


def op_turn(place_of_node: LongArray, op_of_node: IntArray, num_ops: int) -> IntArray:
    """i4[N]: ops in the order of their first nodes, of equals by index."""
    place = np.full(num_ops, np.iinfo(np.int64).max)
    np.minimum.at(place, op_of_node, place_of_node)
    turn = np.empty(num_ops, dtype=np.int32)
    turn[np.argsort(place, kind="stable")] = np.arange(num_ops, dtype=np.int32)
    return turn


def _priced(
    nodes: TracedNodes, alone: FloatArray, op_types: Sequence[str]
) -> tuple[FloatArray, np.ndarray]:
    """f8[nodes] seconds of every node that can run on the kind, and i1[nodes] provenance."""
    never = np.isnan(nodes.seconds)
    ran = Provenance.SCALED if nodes.is_by_unsplit else Provenance.TRACED
    known = np.full(len(alone), ran, dtype=np.int8)
    known[nodes.is_absent] = Provenance.ABSENT
    known[never] = Provenance.SCALED
    seconds = nodes.seconds.copy()
    price = np.where(np.isfinite(alone), alone, 0.0)
    if never.any():
        # By what traced nodes of their types took. A small node shows what a kernel of its type
        # takes to start, not how its time grows with sizes: a scalar's sum takes a thousand times
        # its price.
        traced = ~never & ~nodes.is_absent & (price > 0.0)
        work = np.where(traced, np.maximum(nodes.seconds - nodes.overhead_seconds, 0.0), 0.0)
        is_small, types = price < max(nodes.overhead_seconds, SMALL_SECONDS), np.array(op_types)
        of_all = _ratio(work, price, traced & ~is_small, 1.0)
        for op_type in np.unique(types[never]).tolist():
            mine = types == op_type
            ratio = _ratio(work, price, traced & mine & ~is_small, of_all)
            start = _ratio(work, np.ones_like(work), traced & mine & is_small, 0.0)
            own = mine & never
            seconds[own] = nodes.overhead_seconds + start + ratio * price[own]
    return seconds, known


def _ratio(spent: FloatArray, priced: FloatArray, of: np.ndarray, otherwise: float) -> float:
    return float(spent[of].sum() / priced[of].sum()) if of.any() else otherwise


def _notes(traced: Sequence[TracedNodes]) -> list[str]:
    steps = sum(nodes.num_steps for nodes in traced)
    disturbed = sum(nodes.num_disturbed for nodes in traced)
    load = max(nodes.background_share for nodes in traced)
    if any(nodes.is_by_unsplit for nodes in traced):
        return ["ops of this step are priced by what those of the step as it came took"]
    notes = []
    if disturbed:
        notes.append(f"{disturbed} of {steps} traced steps were slower than the rest and left out")
    if load > BUSY_SHARE:
        notes.append(
            f"while ops were timed, other programs used {100 * load:.0f} % of this machine: the "
            "costs may be too high; they are not kept in the cache"
        )
    return notes
