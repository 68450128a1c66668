"""What each node of a flat graph asks of a device, whichever device that is.

It depends on the graph and on TensorFlow alone, takes seconds (Grappler's process, TensorFlow's
kernel registry), and is therefore what a cache keeps; `costs.price` makes seconds of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphs.building.shapes import TensorProperties, infer
from graphs.building.unit_bodies import LOOPS, UnitBodies, unit_bodies
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.pricing.grappler_costs import OpWork, estimate, with_defaults
from graphs.pricing.inner_work import NO_INNER_WORK, InnerWork, TripCounts, joined, trip_counts
from graphs.pricing.kernels import BUFFER_OPS, KernelTable, kernel_table

BoolArray = npt.NDArray[np.bool_]
DEVICE_TYPES = ("CPU", "GPU")
MAX_NESTING = 6  # of loops and conditionals in each other whose bodies are priced


@dataclasses.dataclass(frozen=True)
class NodeWork:
    """What the nodes compute and move, and where they have kernels.

    Attributes:
      work: flops and bytes; nan where Grappler did not price the node.
      has_kernel: {device type: bool[nodes]}.
      launches: {device type: bool[nodes]}, whether running the node launches a GPU kernel.
      kernel_source: whose kernels these are, for the report.
      times: f8[nodes] how often each runs: more than once in v1 loops, less in branches of
        conditionals; None for once each.
      inner: what is inside units.
      trip_counts: {loop: iterations} where they are known.
    """

    work: OpWork
    has_kernel: Mapping[str, BoolArray]
    launches: Mapping[str, BoolArray]
    kernel_source: str
    times: npt.NDArray[np.float64] | None = None
    inner: InnerWork = NO_INNER_WORK
    trip_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)


def node_work(flat: FlatGraph, properties: TensorProperties, nesting: int = 0) -> NodeWork:
    """Asks Grappler and the kernel registry about every node, and about those inside units."""
    table = kernel_table()
    nodes, library = flat.graph_def.node, flat.graph_def.library
    trips = trip_counts(flat, properties)
    bodies = unit_bodies(flat, properties) if nesting < MAX_NESTING else None
    return NodeWork(
        estimate(flat, properties),
        {t: np.array([runs_on(n, t, table, library) for n in nodes], bool) for t in DEVICE_TYPES},
        {t: np.array([table.launches(n, t) for n in nodes], bool) for t in DEVICE_TYPES},
        table.source,
        trips.times,
        NO_INNER_WORK if bodies is None else _inner_work(flat, bodies, trips, nesting),
        {**trips.of_frame, **trips.of_unit},
    )


def _inner_work(flat: FlatGraph, bodies: UnitBodies, trips: TripCounts, nesting: int) -> InnerWork:
    """The rows of all bodies, and of what is inside these."""
    try:
        properties = infer(bodies.flat)
    except ModelError:  # arguments that don't fit; the unit counts as moving its tensors
        return NO_INNER_WORK
    asked = node_work(bodies.flat, properties, nesting + 1)
    unit = np.zeros(len(bodies.function_of_node), np.int32)
    times = np.zeros(len(unit))
    is_known = np.ones(len(unit), np.bool_)
    for i, number in enumerate(bodies.function_of_node):
        if number < 0:
            continue
        function = bodies.functions[number]
        head = flat.graph_def.node[function.unit]
        unit[i] = function.unit
        times[i] = trips.of_unit.get(head.name, 1) * function.share * trips.times[function.unit]
        is_known[i] = head.op not in LOOPS or head.name in trips.of_unit
    filled = with_defaults(bodies.flat, properties, asked.work)
    nodes = bodies.flat.graph_def.node
    counts = np.array([node.op not in BUFFER_OPS for node in nodes], np.bool_) & (times > 0.0)
    rows = np.flatnonzero(counts)
    own = times if asked.times is None else times * asked.times
    outer = InnerWork(
        unit[rows],
        own[rows],
        filled.flops[rows],
        filled.memory_bytes[rows],
        asked.launches["GPU"][rows],
        (is_known & ~np.isnan(asked.work.flops))[rows],
    )
    inside = asked.inner
    nested = dataclasses.replace(
        inside,
        node=unit[inside.node],
        times=inside.times * times[inside.node],
        is_priced=inside.is_priced & is_known[inside.node],
    )
    return joined([outer, nested])


def runs_on(node: Any, device_type: str, table: KernelTable, library: Any = None) -> bool:
    """Whether a node, and for a unit everything in its functions, has a kernel there.

    An op type without any registration, here or shipped (a custom op of another process, say),
    is taken to run on CPUs only.
    """
    if node.op not in table.of_op:
        return device_type == "CPU"
    if table.matching(node, device_type) is None:
        return False
    if library is None or not any(_functions_of(node)):
        return True
    body_of = {function.signature.name: function for function in library.function}
    return all(
        inner.op in body_of or runs_on(inner, device_type, table)
        for inner in _inner_nodes(node, body_of)
    )


def _inner_nodes(node: Any, body_of: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    pending, seen = list(_functions_of(node)), set()
    while pending:
        name = pending.pop()
        if name in seen or name not in body_of:
            continue
        seen.add(name)
        for inner in body_of[name].node_def:
            found.append(inner)
            pending.extend(_functions_of(inner))
            pending.append(inner.op)
    return found


def _functions_of(node: Any) -> list[str]:
    names = []
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            names.append(value.func.name)
        elif kind == "list":
            names.extend(function.name for function in value.list.func)
    return names
