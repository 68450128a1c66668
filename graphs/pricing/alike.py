"""Copies of one op in a split step cost the same: Grappler and the kernel registry see one of them.

A step of 64 shards has 160,000 ops, but little more than the unsplit step's kinds of them. The
copy of `a/b` for shard m is `a/b/shard_m`; copies are alike if type, attributes, and dtypes and
shapes of all inputs and outputs are equal, so that shards of different sizes stay apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.names import op_of, original_name, parse_input
from graphs.op_graph import LongArray

_FRAMES = frozenset({"Enter", "RefEnter", "NextIteration", "RefNextIteration"})
_HANDLES = frozenset({"resource", "variant"})
_NOT_PRICED = frozenset({"_class", "_output_shapes"})


def first_alike(graph_def: Any, properties: TensorProperties) -> LongArray:
    """i8[nodes]: the first node that is alike, which may be the node itself.

    Loops of TensorFlow 1 hold copies in frames, of which none may be missing: there every node is
    like itself alone, as are nodes that make handles.
    """
    nodes = graph_def.node
    first = np.arange(len(nodes), dtype=np.int64)
    if any(node.op in _FRAMES for node in nodes):
        return first
    seen: dict[tuple[Any, ...], int] = {}
    for number, node in enumerate(nodes):
        if "/shard_" not in node.name or _HANDLES & {*properties.dtype_of[node.name]}:
            continue
        original = original_name(node.name)
        if original != node.name:
            first[number] = seen.setdefault((original, *_kind(node, properties)), number)
    return first


def _kind(node: Any, properties: TensorProperties) -> tuple[Any, ...]:
    """What the price of a node hangs on."""
    attributes = sorted(
        (key, value.SerializeToString(deterministic=True))
        for key, value in node.attr.items()
        if key not in _NOT_PRICED
    )
    sources = [parse_input(name) for name in node.input if not name.startswith("^")]
    inputs = [
        (properties.dtype_of[each.op][each.output], properties.shape_of[each.op][each.output])
        for each in sources
    ]
    outputs = (*properties.dtype_of[node.name], *properties.shape_of[node.name])
    return (node.op, *attributes, *inputs, *outputs)


def without_alike(graph_def: Any, first: LongArray) -> Any:
    """The graph of the first nodes alone, which read the first instead of those alike."""
    nodes = graph_def.node
    stand_in = {nodes[n].name: nodes[f].name for n, f in enumerate(first) if n != f}
    kept = type(graph_def)(library=graph_def.library, versions=graph_def.versions)
    for number in np.flatnonzero(first == np.arange(len(first))):
        copy = kept.node.add()
        copy.CopyFrom(nodes[number])
        if not stand_in.keys().isdisjoint(op_of(name) for name in copy.input):
            inputs = [_redirected(name, stand_in) for name in copy.input]
            del copy.input[:]
            copy.input.extend(filter(None, inputs))
    return kept


def _redirected(name: str, stand_in: dict[str, str]) -> str:
    """An input as the kept graph has it; empty for a control edge from what is left out."""
    source = op_of(name)
    if source not in stand_in:
        return name
    return "" if name.startswith("^") else f"{stand_in[source]}:{parse_input(name).output}"
