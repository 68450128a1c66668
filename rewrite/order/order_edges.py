"""The edges of an order: what holds for all, how they are marked, added and taken out."""

import copy
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphs.by_key import by_key
from graphs.flat_graph import Origin
from graphs.function_library import bodies
from graphs.graph_edges import edges_of
from graphs.names import op_of
from graphs.op_graph import IntArray, LongArray
from graphs.protos import GraphDef, MetaGraphDef, NodeDef
from graphs.source_model import SourceModel
from rewrite.call_graph import CallGraph, places_of
from rewrite.pass_base import RewriteError, op_path

OrderEdge = tuple[Origin, Origin]
"""(the op that goes first, the op that waits for it), both in one body."""


def placed_edges(
    calls: CallGraph, order: Iterable[OrderEdge]
) -> "dict[OrderEdge, list[PlacedEdge]]":
    """Where each edge stands: in one body, in copies of a function, or nowhere."""
    places: dict[OrderEdge, list[PlacedEdge]] = {}
    for first, then in order:
        waits = dict(places_of(calls, then))
        places[first, then] = [
            (function, waits[function], node)
            for function, node in places_of(calls, first)
            if function in waits
        ]
    return places


def known_order(graph_def: GraphDef, order: Iterable[OrderEdge]) -> list[OrderEdge]:
    """The edges of which a graph has both ops, by the same calls."""
    return [edge for edge, places in placed_edges(CallGraph(graph_def), order).items() if places]


def in_meta_graph(
    source: SourceModel, meta_graph: MetaGraphDef, order: Collection[OrderEdge]
) -> list[OrderEdge]:
    """The edges that one of a SavedModel's MetaGraphDefs gets: all that it has, if it has the run.

    Another one may have ops of the same names, for runs that must not run more than they did.
    """
    if source.saved_model_dir:
        own = source.meta_graph_def.meta_info_def
        if set(own.tags) != set(meta_graph.meta_info_def.tags):
            return []
    return known_order(meta_graph.graph_def, order)


def without_cycles(graph_def: GraphDef, order: Collection[OrderEdge]) -> list[OrderEdge]:
    """The edges without those that would close a cycle in a body.

    Edges that close none in the opened graph may close one in a body that calls functions: there a
    call waits for all that it is given before it hands anything on.
    """
    calls = CallGraph(graph_def)
    places = placed_edges(calls, order)
    bad = set(closing(calls, (edge for edges in places.values() for edge in edges)))
    return [edge for edge, found in places.items() if found and bad.isdisjoint(found)]


def check_order(graph_def: GraphDef, order: Iterable[OrderEdge]) -> None:
    """Checks that the marked edges of a graph are exactly these, and harmless.

    Raises:
      RewriteError: one is missing, nobody asked for one, one leads to another device, or edges
        close a cycle.
    """
    calls = CallGraph(graph_def)
    wanted = {edge for edges in placed_edges(calls, order).values() for edge in edges}
    for function, node, first in order_of(graph_def):
        if (function, node, first) not in wanted:
            raise RewriteError(
                f"checking the order: {op_path(function, node)!r} waits for {first!r}, which "
                "nobody asked for"
            )
    for function, node, first in wanted:
        nodes = calls.nodes(function)
        if f"^{first}" not in nodes[node].input:
            raise RewriteError(
                f"checking the order: {op_path(function, node)!r} does not wait for {first!r}"
            )
        if nodes[node].device != nodes[first].device:
            raise RewriteError(
                f"checking the order: {op_path(function, node)!r} on {nodes[node].device!r} waits "
                f"for {first!r} on {nodes[first].device!r}; wanted both on one device"
            )
    for function, node, first in closing(calls, wanted):
        raise RewriteError(
            f"checking the order: with {op_path(function, node)!r} waiting for {first!r}, ops "
            "wait for one another in a circle"
        )


def closing(calls: CallGraph, edges: "Iterable[PlacedEdge]") -> "Iterator[PlacedEdge]":
    """Those of the edges that lie on a cycle of their body, once what oneDNN joins is one op."""
    for function, inside in by_key((edge[0], edge) for edge in edges).items():
        nodes = calls.body(function)
        own = edges_of(nodes)
        index = {node.name: number for number, node in enumerate(nodes)}
        goes_round = np.array([node.op == "NextIteration" for node in nodes], dtype=bool)
        counts = (own.producer >= 0) & ~goes_round[own.producer]
        source = np.array([index[first] for _, _, first in inside], dtype=np.int64)
        target = np.array([index[node] for _, node, _ in inside], dtype=np.int64)
        sources = np.concatenate([source, own.producer[counts]])
        targets = np.concatenate([target, own.consumer[counts]])
        pairs = np.array(joined(nodes), dtype=np.int64).reshape(-1, 2)
        one = components(len(nodes), pairs[:, 0], pairs[:, 1], "weak")
        circle = components(len(nodes), sources, targets, "strong")
        circle_of_joined = components(len(nodes), one[sources], one[targets], "strong")[one]
        closes = circle_of_joined[source] == circle_of_joined[target]
        closes &= (one[source] != one[target]) | (circle[source] == circle[target])
        yield from itertools.compress(inside, closes)


def joined(nodes: Sequence[NodeDef]) -> list[tuple[int, int]]:
    """Pairs of nodes that TensorFlow makes one op with oneDNN's kernels, by their indices.

    It does so whatever has to run between the two by control edges, and then finds its graph in a
    circle (mkl_layout_pass.cc, TensorFlow 2.21). The second reads the first, or both read one
    gradient.
    """
    index = {node.name: number for number, node in enumerate(nodes)}

    def read(node: NodeDef, position: int) -> str:
        name = ""
        for _ in nodes:  # a stranger's body may lack inputs, and go round
            if position >= len(node.input):
                break
            name = op_of(node.input[position])
            node, position = nodes[index[name]] if name in index else node, 0
            if name not in index or node.op != "Identity" or len(node.input) != 1:
                break
        return name

    pairs: list[tuple[int, int]] = []
    filters = by_key(
        (read(node, 2), number)
        for number, node in enumerate(nodes)
        if node.op == "Conv2DBackpropFilter"
    )
    for number, node in enumerate(nodes):
        if node.op == "BiasAddGrad":
            pairs += [(each, number) for each in filters.get(read(node, 0), ())]
        elif node.op in _JOINED:
            first = index.get(read(node, 0), number)
            if nodes[first].op == _JOINED[node.op]:
                pairs.append((first, number))
    return pairs


_JOINED = {"BiasAdd": "Conv2D", "Conv2D": "Pad"}
"""{op: the op that it is joined with where it reads that}."""


def components(size: int, source: LongArray, target: LongArray, connection: str) -> IntArray:
    """i4[size]: the strongly or weakly connected component of each node."""
    matrix = coo_matrix((np.ones(len(source)), (source, target)), shape=(size, size))
    _, component = connected_components(matrix, directed=True, connection=connection)
    found: IntArray = component
    return found


MARK = "_order_after"
"""The attribute that lists them; TensorFlow leaves names that begin like this to others."""

PlacedEdge = tuple[str, str, str]
"""(function, node, node that it waits for) as they stand in a GraphDef; "" is the main graph."""


def marked(node: NodeDef) -> tuple[str, ...]:
    """The nodes that a node waits for only because of an order."""
    if MARK not in node.attr:
        return ()
    return tuple(name.decode(errors="replace") for name in node.attr[MARK].list.s)


def add_marked(node: NodeDef, first: str) -> None:
    """Makes a node wait for another one of its body, and notes it."""
    node.input.append(f"^{first}")
    node.attr[MARK].list.s.append(first.encode())


def forget(node: NodeDef) -> None:
    """Takes an order's inputs out of a node, and their mark.

    Raises:
      RewriteError: it is marked with what is no control input of it.
    """
    inputs = list(node.input)
    for first in marked(node):
        if f"^{first}" not in inputs:
            raise RewriteError(
                f"taking the order out of {node.name!r}: it is marked to wait for {first!r} and "
                "does not"
            )
        position = len(inputs) - 1 - inputs[::-1].index(f"^{first}")
        del inputs[position]
    if MARK in node.attr:
        node.input[:] = inputs
        del node.attr[MARK]


def order_of(graph_def: GraphDef) -> list[PlacedEdge]:
    """All marked edges of a graph and its functions."""
    return [
        (function, node.name, first)
        for function, nodes in bodies(graph_def)
        for node in nodes
        for first in marked(node)
    ]


def forget_order(graph_def: GraphDef, keeps_edges: bool = False) -> None:
    """Takes all marked edges out of a graph in place, or their marks alone."""
    for _, nodes in bodies(graph_def):
        for node in nodes:
            if MARK in node.attr and keeps_edges:
                del node.attr[MARK]
            elif MARK in node.attr:
                forget(node)


def without_order(graph_def: GraphDef, keeps_edges: bool = False) -> GraphDef:
    """The graph itself where nothing in it is marked, else a copy without the marked edges.

    With `keeps_edges` they are there still, as edges of the model's own that no order takes out.
    """
    if not any(MARK in node.attr for _, nodes in bodies(graph_def) for node in nodes):
        return graph_def
    cleared = copy.deepcopy(graph_def)
    forget_order(cleared, keeps_edges)
    return cleared


def add_order(graph_def: GraphDef, order: Iterable[OrderEdge]) -> None:
    """Adds edges in place; an op that waits by a control edge of its own gets no second one."""
    calls = CallGraph(graph_def)
    missing = {
        (function, node, first)
        for edges in placed_edges(calls, order).values()
        for function, node, first in edges
        if f"^{first}" not in calls.nodes(function)[node].input
    }
    for function, node, first in sorted(missing):
        add_marked(calls.nodes(function)[node], first)
