"""Where in a model's graph and functions an order can be written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.building.frames import depth_in_conditionals
from graphs.flat_graph import Origin
from graphs.graph_view import GraphView
from graphs.names import op_of
from graphs.op_graph import IntArray
from graphs.source_model import SourceModel
from rewrite.order.order_edges import OrderEdge, without_cycles
from rewrite.split.refused_batch import changes_state
from tfplace.choosing.order.anchors import Bools
from tfplace.choosing.order.edges import OrderEdges
from tfplace.preparing.prepare import PreparedModel


def bodies_of(prepared: PreparedModel) -> IntArray:
    """i4[N]: ops with one number stand in one body, which one chain of calls leads to; else -1.

    Left out are ops that may not run, since what waits for them wouldn't run either; units of
    several nodes; what is fed; what other runs of the model run, too, since they would run what it
    waits for; and all of a training step that is not in the model that is written.
    """
    flat, built = prepared.flat, prepared.built
    body_of_op = np.full(built.graph.num_ops, -1, dtype=np.int32)
    if prepared.source.origins is not None and prepared.source.saved_model_dir:
        return body_of_op
    nodes_of_op = np.bincount(built.op_of_node, minlength=built.graph.num_ops)
    depth = depth_in_conditionals(flat.graph_def.node, flat.unit_of_node)
    fed = {op_of(spec.tensor) for spec in flat.feeds}
    shared = _of_other_runs(prepared.source)
    chain_of_function: dict[str, tuple[str, ...]] = {}
    number: dict[str, int] = {}
    for node, origin, op in zip(
        flat.graph_def.node, flat.origins, built.op_of_node.tolist(), strict=True
    ):
        is_whole = nodes_of_op[op] == 1 and flat.share_of_node.get(node.name, 1.0) == 1.0
        if not is_whole or depth[node.name] or not origin.node or node.name in fed:
            continue
        if not origin.function and origin.node in shared:
            continue
        if chain_of_function.setdefault(origin.function, origin.calls) == origin.calls:
            body_of_op[op] = number.setdefault(origin.function, len(number))
    return body_of_op


def _of_other_runs(source: SourceModel) -> set[str]:
    """The ops of the main graph that something else than the run runs, too.

    That is what an op reads that is not in the run: of another signature, of what saves or
    initialises variables, or of the unsplit step. And what another signature returns.
    """
    view = GraphView(source.graph_def)
    of_run = {op_of(fetch) for fetch in source.fetches}
    own = view.ancestors(source.fetches)
    others = [name for name in view.nodes if name not in own]
    for signature in source.signatures.values():
        returned = {op_of(spec.tensor) for spec in signature.outputs.values()}
        others += () if returned == of_run else sorted(returned & view.nodes.keys())
    return {*view.ancestors(others)}


def may_be_waited_for(prepared: PreparedModel) -> Bools:
    """bool[N]: ops that an order may let others wait for.

    Who runs a part of a step that lies in the main graph, the loss alone, must not write variables
    by it: nothing waits there for what writes one, or comes behind such a write.
    """
    flat, built = prepared.flat, prepared.built
    writes: set[str] = set()
    result = np.ones(built.graph.num_ops, dtype=bool)
    for node, origin, op in zip(
        flat.graph_def.node, flat.origins, built.op_of_node.tolist(), strict=True
    ):
        if origin.function:
            continue
        if any(op_of(name) in writes for name in node.input) or changes_state(node, flat.library):
            writes.add(node.name)
            result[op] = False
    return result


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
