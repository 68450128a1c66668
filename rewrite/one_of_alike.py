"""A large graph without the ops that are like another one, for TensorFlow's Python to take in.

A step of 64 shards has 180,000 ops and a twentieth of that in kinds of them. TensorFlow's Python
makes some kilobytes of objects of every op that it imports, and a session as much again. So it
gets one op of a kind, and what it said of that is said of all.
"""

import copy
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphs import op_types
from graphs.building.same_shapes import first_of_shapes, without_same
from graphs.graph_edges import edges_of, in_order
from graphs.graph_view import reached
from graphs.names import beside, data_inputs, op_of
from graphs.op_graph import LongArray
from graphs.protos import GraphDef, NodeDef

LEAST_NODES = 10_000
"""Of fewer nodes TensorFlow takes in all in a few seconds."""
_BESIDE = "_class"
"""The attribute that names other ops, which each op of a kind has for itself."""


@dataclasses.dataclass(frozen=True)
class OneOfAlike:
    """One op of each kind of a graph, and which op is of which kind.

    Attributes:
      graph_def: these ops; what is left out is read from the one of its kind.
      order: which node of the graph TensorFlow imports first, second, ...
      first: i8[nodes] in that order, which of them stands for each.
    """

    graph_def: GraphDef
    order: Sequence[int]
    first: LongArray

    def all_of(self, given: GraphDef, imported: Iterable[NodeDef]) -> Iterator[NodeDef]:
        """All nodes as TensorFlow would have written them, had it imported all.

        Args:
          imported: what was written of `graph_def`, and what was added to it; this comes last.
        """
        nodes = [given.node[number] for number in self.order]
        there = {node.name: node for node in imported}
        for node, first in zip(nodes, self.first.tolist(), strict=True):
            yield _like(node, there[nodes[first].name])
        own = {node.name for node in nodes}
        yield from (node for name, node in there.items() if name not in own)


def one_of_alike(
    graph_def: GraphDef,
    run: Collection[str],
    named: Collection[str],
    prefixes: tuple[str, ...] = (),
) -> OneOfAlike | None:
    """Leaves out of a graph what is like another op of it.

    Args:
      run: ops that are run in what stays, where everything that they read or wait for stays, too:
        what is alike has the same shapes, not the same values.
      named: ops that stay besides.
      prefixes: so do those whose names begin with these.

    Returns:
      None where nothing can be left out: it has loops of TensorFlow 1, or is no whole graph.
    """
    nodes = {node.name: node for node in graph_def.node}
    order = import_order(graph_def.node)
    if order is None or len(nodes) < len(graph_def.node):
        return None
    above = reached(run, lambda op: map(op_of, nodes[op].input) if op in nodes else ())
    stay = {*named, *(above.keys() & nodes.keys())}
    stay.update(name for name in nodes if name.startswith(prefixes))
    ordered = type(graph_def)(library=graph_def.library, versions=graph_def.versions)
    ordered.node.extend(graph_def.node[number] for number in order)
    first = first_of_shapes(ordered, stay)
    kept = without_same(ordered, first)
    names = [node.name for node in ordered.node]
    stands_for = {name: names[f] for name, f in zip(names, first.tolist(), strict=True)}
    for node in kept.node:
        waits = (name[1:] for name in nodes[node.name].input if name.startswith("^"))
        node.input.extend(dict.fromkeys(f"^{stands_for[op]}" for op in waits))
        _keep_beside(node, stands_for)
    return OneOfAlike(kept, order, first)


def import_order(nodes: Sequence[NodeDef]) -> list[int] | None:
    """The order in which TensorFlow imports nodes: always the first one whose inputs are there.

    Returns:
      Indices of nodes; None where loops of TensorFlow 1 go round, or inputs are missing.
    """
    edges = edges_of(nodes)
    if (edges.producer < 0).any() or any(node.op in op_types.NEXT_ITERATION for node in nodes):
        return None
    order = in_order(edges.producer, edges.consumer, len(nodes), lowest_first=True)
    return order if len(order) == len(nodes) else None


def _keep_beside(node: NodeDef, stands_for: Mapping[str, str]) -> None:
    """Takes out wishes to lie beside an op that is left out; one that never was stays wrong."""
    if _BESIDE not in node.attr:
        return
    wishes = list(node.attr[_BESIDE].list.s)
    kept = [w for w, op in zip(wishes, beside(node), strict=True) if stands_for.get(op, op) == op]
    del node.attr[_BESIDE]
    if kept:
        node.attr[_BESIDE].list.s.extend(kept)


def _like(node: NodeDef, imported: NodeDef) -> NodeDef:
    """A node as TensorFlow writes it, with the attributes that it gave to one of its kind."""
    result = copy.deepcopy(imported)
    result.name = node.name
    result.input[:] = [name.removesuffix(":0") for name in data_inputs(node)]
    result.input.extend(sorted({name for name in node.input if name.startswith("^")}))
    result.attr.pop(_BESIDE, None)
    if _BESIDE in node.attr:
        result.attr[_BESIDE].CopyFrom(node.attr[_BESIDE])
    result.ClearField("experimental_debug_info")
    if node.HasField("experimental_debug_info"):
        result.experimental_debug_info.CopyFrom(node.experimental_debug_info)
    return result
