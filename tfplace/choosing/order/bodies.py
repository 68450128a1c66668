"""Where in a model's graph and functions an order can be written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.building.frames import depth_in_conditionals
from graphs.flat_graph import Origin
from graphs.names import op_of
from graphs.op_graph import IntArray
from rewrite.order.order_edges import OrderEdge, without_cycles
from tfplace.choosing.order.edges import OrderEdges
from tfplace.preparing.prepare import PreparedModel


def bodies_of(prepared: PreparedModel) -> IntArray:
    """i4[N]: ops with one number stand in one body, which one chain of calls leads to; else -1.

    Left out are ops that may not run, since what waits for them wouldn't run either; units of
    several nodes; what is fed; and all of a training step that is not in the model that is written.
    """
    flat, built = prepared.flat, prepared.built
    body_of_op = np.full(built.graph.num_ops, -1, dtype=np.int32)
    if prepared.source.origins is not None and prepared.source.saved_model_dir:
        return body_of_op
    nodes_of_op = np.bincount(built.op_of_node, minlength=built.graph.num_ops)
    depth = depth_in_conditionals(flat.graph_def.node, flat.unit_of_node)
    fed = {op_of(spec.tensor) for spec in flat.feeds}
    chain_of_function: dict[str, tuple[str, ...]] = {}
    number: dict[str, int] = {}
    for node, origin, op in zip(
        flat.graph_def.node, flat.origins, built.op_of_node.tolist(), strict=True
    ):
        is_whole = nodes_of_op[op] == 1 and flat.share_of_node.get(node.name, 1.0) == 1.0
        if not is_whole or depth[node.name] or not origin.node or node.name in fed:
            continue
        if chain_of_function.setdefault(origin.function, origin.calls) == origin.calls:
            body_of_op[op] = number.setdefault(origin.function, len(number))
    return body_of_op


def origin_edges(prepared: PreparedModel, edges: OrderEdges) -> list[OrderEdge]:
    """The edges as the model's graph and functions name their ops."""
    node_of_op: dict[int, Origin] = dict(
        zip(prepared.built.op_of_node.tolist(), prepared.flat.origins, strict=True)
    )
    pairs = zip(edges.before.tolist(), edges.after.tolist(), strict=True)
    return [(node_of_op[before], node_of_op[after]) for before, after in pairs]


def writable(prepared: PreparedModel, edges: OrderEdges) -> OrderEdges:
    """The edges without those that close a cycle where calls are not opened."""
    if not any(origin.function for origin in prepared.flat.origins):
        return edges
    named = origin_edges(prepared, edges)
    kept = set(without_cycles(prepared.source.graph_def, named))
    return _where(edges, [edge in kept for edge in named])


def _where(edges: OrderEdges, kept: Sequence[bool]) -> OrderEdges:
    mask = np.array(kept, dtype=bool)
    return OrderEdges(edges.before[mask], edges.after[mask])
