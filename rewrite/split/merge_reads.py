"""Reads a variable once where all who read it see the same value.

Optimizers read the step's number and the learning rate anew for each variable that they update. A
read is stateful, so TensorFlow merges none of them, and each one is a message of its own to every
device that it is used on. Reads that no write can come before are one and the same.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from graphs.flat_graph import FlatGraph, Origin
from graphs.names import data_inputs, op_of, parse_input

_READ = "ReadVariableOp"
NEVER_WRITE = frozenset({_READ, "ResourceGather", "ResourceGatherNd", "VariableShape"})
_PLACE = "loc:@"
Variable = tuple[bytes, bytes, int]
"""What tells variables apart: container, name and dtype."""


def merge_reads(flat: FlatGraph) -> FlatGraph:
    """The step without the reads that read what an earlier one does.

    Merged are reads that wait for nothing, of variables that the step never writes, or that all
    their writes come after.

    Args:
      flat: the step with its calls opened.

    Returns:
      The step; the same object where there is nothing to merge.
    """
    kept_for = _kept_for(flat)
    if not kept_for:
        return flat
    rows = []
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        if node.name in kept_for:
            continue
        new = copy.deepcopy(node)
        inputs = [_renamed(name, kept_for) for name in node.input]
        data = [name for name in inputs if not name.startswith("^")]
        new.input[:] = [*data, *dict.fromkeys(name for name in inputs if name.startswith("^"))]
        _rename_places(new, kept_for)
        rows.append((new, origin))
    return with_nodes(flat, rows)


def with_nodes(flat: FlatGraph, rows: Sequence[tuple[Any, Origin]]) -> FlatGraph:
    """The step with other nodes, each a NodeDef and its origin."""
    own = flat.graph_def
    graph_def = type(own)(versions=own.versions, library=own.library)
    graph_def.node.extend(node for node, _ in rows)
    origins = [origin for _, origin in rows]
    return dataclasses.replace(flat, graph_def=graph_def, origins=origins)


def _kept_for(flat: FlatGraph) -> Mapping[str, str]:
    """{read that is left out: the read that takes its place}."""
    reads, writers = uses_of_variables(flat, lambda node: node.op == _READ and len(node.input) == 1)
    several = {variable: names for variable, names in reads.items() if len(names) > 1}
    kept_for: dict[str, str] = {}
    for first, *others in written_after(flat, several, writers).values():
        kept_for.update(dict.fromkeys(others, first))
    return kept_for


def uses_of_variables(
    flat: FlatGraph, is_wanted: Callable[[Any], bool]
) -> tuple[dict[Variable, list[str]], dict[Variable, set[str]]]:
    """{variable: its readers that are wanted and may be changed}, {variable: what may write it}.

    Args:
      flat: the step with its calls opened.
      is_wanted: whether a reader of a variable's handle is one of those.
    """
    variable_of = {
        node.name: variable_of_handle(node)
        for node in flat.graph_def.node
        if node.op == "VarHandleOp"
    }
    fixed = {op_of(fetch) for fetch in flat.fetches} | flat.unit_of_node.keys()
    fixed |= flat.share_of_node.keys() | flat.after_of_node.keys()
    fixed.update(name for names in flat.after_of_node.values() for name in names)
    readers: dict[Variable, list[str]] = defaultdict(list)
    writers: dict[Variable, set[str]] = defaultdict(set)
    for node in flat.graph_def.node:
        for name in data_inputs(node):
            variable = variable_of.get(parse_input(name).op)
            if variable is None:
                continue
            if node.op not in NEVER_WRITE:
                writers[variable].add(node.name)
            elif node.name in fixed or not is_wanted(node):
                continue
            elif node.attr["dtype"].type == variable[2]:
                readers[variable].append(node.name)
    return readers, writers


def written_after(
    flat: FlatGraph,
    readers: Mapping[Variable, Sequence[str]],
    writers: Mapping[Variable, Collection[str]],
) -> dict[Variable, Sequence[str]]:
    """The readers of the variables that are never written, or only after all of these readers.

    Args:
      flat: the step with its calls opened.
      readers: {variable: some of its readers}.
      writers: {variable: all that may write it}.
    """
    if not readers:
        return {}
    every = [name for names in readers.values() for name in names]
    bit_of = {name: 1 << i for i, name in enumerate(every)}
    before = _readers_before(flat, bit_of)
    found = {}
    for variable, names in readers.items():
        mask = sum(bit_of[name] for name in names)
        if all(before[writer] & mask == mask for writer in writers.get(variable, ())):
            found[variable] = names
    return found


def variable_of_handle(node: Any) -> Variable:
    """The variable of a VarHandleOp; several ops may hold a handle of one."""
    name = node.attr["shared_name"].s if "shared_name" in node.attr else b""
    container = node.attr["container"].s if "container" in node.attr else b""
    return container, name or node.name.encode(), node.attr["dtype"].type


def _readers_before(flat: FlatGraph, bit_of: Mapping[str, int]) -> Mapping[str, int]:
    """{op: which readers surely come before it}, as bits."""
    before: dict[str, int] = {}
    for node in flat.graph_def.node:
        found = 0
        for name in node.input:  # what closes a loop comes later, and has no bits yet
            source = parse_input(name).op
            found |= before.get(source, 0) | bit_of.get(source, 0)
        before[node.name] = found
    return before


def _renamed(name: str, kept_for: Mapping[str, str]) -> str:
    """An input that reads what is kept; a read has one output."""
    source = parse_input(name).op
    if source not in kept_for:
        return name
    return f"^{kept_for[source]}" if name.startswith("^") else kept_for[source]


def _rename_places(node: Any, kept_for: Mapping[str, str]) -> None:
    places: Sequence[bytes] = node.attr["_class"].list.s if "_class" in node.attr else ()
    for i, place in enumerate(places):
        name = place.decode().removeprefix(_PLACE)
        if name in kept_for:
            places[i] = f"{_PLACE}{kept_for[name]}".encode()  # type: ignore[index]
