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

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.pricing.grappler_costs import Work, estimate
from graphs.pricing.kernels import KernelTable, kernel_table

BoolArray = npt.NDArray[np.bool_]
DEVICE_TYPES = ("CPU", "GPU")


@dataclasses.dataclass(frozen=True)
class NodeWork:
    """What the nodes compute and move, and where they have kernels.

    Attributes:
      work: flops and bytes; nan where Grappler did not price the node.
      has_kernel: {device type: bool[nodes]}.
      launches: {device type: bool[nodes]}, whether running the node launches a GPU kernel.
      kernel_source: whose kernels these are, for the report.
    """

    work: Work
    has_kernel: Mapping[str, BoolArray]
    launches: Mapping[str, BoolArray]
    kernel_source: str


def node_work(flat: FlatGraph, properties: TensorProperties) -> NodeWork:
    """Asks Grappler and the kernel registry about every node."""
    table = kernel_table()
    nodes, library = flat.graph_def.node, flat.graph_def.library
    return NodeWork(
        estimate(flat, properties),
        {t: np.array([runs_on(n, t, table, library) for n in nodes], bool) for t in DEVICE_TYPES},
        {t: np.array([table.launches(n, t) for n in nodes], bool) for t in DEVICE_TYPES},
        table.source,
    )


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
