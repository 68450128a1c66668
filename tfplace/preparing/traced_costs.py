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
    the executor's share.

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
        nodes = traced[kind]
        seconds, known = _priced(nodes, alone_seconds[kind], op_types)
        here = np.isfinite(costs.op_seconds[:, d])
        op_seconds[here, d] = np.bincount(op_of_node, seconds, num_ops)[here]
        provenance[:, d] = _of_ops(known, op_of_node, num_ops)
    first = next(iter(traced.values()))
    covered = costs.covered | (provenance >= Provenance.ABSENT).any(axis=1)
    return dataclasses.replace(
        costs,
        op_seconds=op_seconds,
        source=_source(op_seconds, provenance, costs.source),
        covered=covered,
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


def _of_ops(known: np.ndarray, op_of_node: IntArray, num_ops: int) -> np.ndarray:
    """i1[N]: a unit with a scaled node is scaled; else it is what its best known node is."""
    best = np.full(num_ops, Provenance.ANALYTIC, dtype=np.int8)
    np.maximum.at(best, op_of_node, known)
    best[op_of_node[known == Provenance.SCALED]] = Provenance.SCALED
    return best


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
        ratio = _ratios(nodes, price, op_types)
        scale = np.array(
            [ratio.get(op_types[i], ratio[""]) for i in np.flatnonzero(never).tolist()]
        )
        seconds[never] = scale * price[never] + nodes.overhead_seconds
    return seconds, known


def _ratios(nodes: TracedNodes, price: FloatArray, op_types: Sequence[str]) -> dict[str, float]:
    """{op type: traced seconds without overhead / analytic seconds}; "" is of all types.

    1 where nothing that was traced has a price.
    """
    ran = ~np.isnan(nodes.seconds) & ~nodes.is_absent & (price > 0.0)
    work = np.maximum(nodes.seconds - nodes.overhead_seconds, 0.0)
    sums: dict[str, list[float]] = {"": [0.0, 0.0]}
    for i in np.flatnonzero(ran).tolist():
        for key in ("", op_types[i]):
            pair = sums.setdefault(key, [0.0, 0.0])
            pair[0] += work[i]
            pair[1] += price[i]
    return {key: spent / priced if priced else 1.0 for key, (spent, priced) in sums.items()}


def _source(op_seconds: FloatArray, provenance: np.ndarray, analytic: str) -> str:
    known = provenance[np.isfinite(op_seconds)] >= Provenance.ABSENT
    return "measured" if known.all() else "mixed" if known.any() else analytic


def _notes(traced: Sequence[TracedNodes]) -> list[str]:
    steps = sum(nodes.num_steps for nodes in traced)
    disturbed = sum(nodes.num_disturbed for nodes in traced)
    load = max(nodes.background_share for nodes in traced)
    if any(nodes.is_by_unsplit for nodes in traced):
        return ["ops of the split step are priced by what those of the unsplit one took"]
    notes = []
    if disturbed:
        notes.append(f"{disturbed} of {steps} traced steps were slower than the rest and left out")
    if load > BUSY_SHARE:
        notes.append(
            f"while ops were timed, other programs used {100 * load:.0f} % of this machine: the "
            "costs may be too high; they are not kept in the cache"
        )
    return notes
