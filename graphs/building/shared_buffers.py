"""Which outputs are the buffer of an input, or take it over where nothing else needs it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from graphs import op_types
from graphs.building.constant_values import HANDS_ON
from graphs.building.node_outputs import NodeOutputs
from graphs.graph_edges import GraphEdges
from graphs.names import data_inputs, op_of, parse_input
from graphs.op_graph import BoolArray, LongArray
from graphs.protos import NodeDef

# A read variable's buffer is held in any case.
_HAND_ON = op_types.ALIASES - {"ReadVariableOp"}


class SharedOutputs(NamedTuple):
    """What each output of all nodes has to do with other buffers.

    Attributes:
      shares: i8[O] as OpGraph.tensor_shares, of outputs.
      takes_over: bool[O] as OpGraph.tensor_takes_over.
    """

    shares: LongArray
    takes_over: BoolArray


def shared_outputs(
    nodes: Sequence[NodeDef],
    edges: GraphEdges,
    outputs: NodeOutputs,
    fed_or_fetched: Collection[str],
    hands_on: Sequence[bool] | BoolArray,
) -> SharedOutputs:
    """Finds whose buffer each output is.

    Of several inputs that an op may take over, the one with fewest users counts: which one
    TensorFlow takes is known only when it runs.

    Args:
      fed_or_fetched: tensors and ops; the caller of the step has what these tensors lie in.
      hands_on: bool[nodes] see `handing_on`.
    """
    num_outputs = np.diff(outputs.first)[edges.producer]
    reads = (edges.producer >= 0) & (edges.output >= 0) & (edges.output < num_outputs)
    of_edge = np.full(len(edges.output), -1, dtype=np.int64)
    of_edge[reads] = outputs.first[edges.producer[reads]] + edges.output[reads]
    num_users = np.bincount(of_edge[reads], minlength=len(outputs.node)).tolist()
    shares = np.full(len(outputs.node), -1, dtype=np.int64)
    takes_over = np.zeros(len(outputs.node), dtype=bool)
    for index, node in enumerate(nodes):
        first, end = outputs.first[index : index + 2].tolist()
        inputs = of_edge[edges.first[index] : edges.first[index + 1]].tolist()
        if first == end or not inputs:
            continue
        if hands_on[index]:
            shares[first:end] = inputs[HANDS_ON[node.op]]
        elif node.op in op_types.TAKES_OVER:
            output, positions = op_types.TAKES_OVER[node.op]
            among = inputs if positions is None else inputs[: positions[-1] + 1][positions[0] :]
            alike = [
                each
                for each in among
                if each >= 0
                and outputs.dtype[each] != "variant"  # a list's elements are no handle's bytes
                and outputs.num_bytes[each] == outputs.num_bytes[first + output]
                and outputs.dtype[each] == outputs.dtype[first + output]
                and inputs.count(each) == 1
            ]
            shares[first + output] = min(alike, key=num_users.__getitem__, default=-1)
            takes_over[first + output] = bool(alike)
        elif node.op in op_types.MERGES:
            # The branches of a conditional: all of them count as run.
            shares[first] = max(inputs, key=lambda i: outputs.num_bytes[i] if i >= 0 else -1)
        elif node.op == "IdentityN":
            shares[first:end] = inputs[: end - first]
        elif node.op in _HAND_ON:
            shares[first:end] = inputs[0]
    is_alias = [hands_on[i] or node.op in _HAND_ON for i, node in enumerate(nodes)]
    kept = _kept(nodes, outputs, shares, fed_or_fetched, is_alias)
    shares[kept], takes_over[kept] = kept, False
    return SharedOutputs(shares, takes_over)


def _kept(
    nodes: Sequence[NodeDef],
    outputs: NodeOutputs,
    shares: LongArray,
    names: Collection[str],
    is_alias: Sequence[bool],
) -> list[int]:
    """The outputs whose buffers these tensors are."""
    number = {node.name: index for index, node in enumerate(nodes)}
    found = []
    for name in names:
        each = parse_input(name)
        index = number.get(each.op, -1) if ":" in name else -1
        if index >= 0 and each.output < outputs.first[index + 1] - outputs.first[index]:
            kept = int(outputs.first[index]) + each.output
            while shares[kept] >= 0 and is_alias[outputs.node[kept]]:
                kept = int(shares[kept])
            found.append(kept)
    return found


def joined_bytes(
    nodes: Sequence[NodeDef], edges: GraphEdges, outputs: NodeOutputs, fetched: Collection[str]
) -> LongArray:
    """i8[nodes]: what terms of an AddN hold, while it runs, beside its inputs.

    Grappler joins AddN of AddN to one that adds all terms at once, which are held until then. As
    gradients of steps are added, more and more of them are there: the last AddN is where most are.
    """
    extra = np.zeros(len(nodes), dtype=np.int64)
    is_sum = np.array([node.op == "AddN" for node in nodes], dtype=bool)
    # What is read twice, or fetched, or what a control edge waits for, stays as it is.
    may_go = is_sum & (np.bincount(edges.producer[edges.producer >= 0], minlength=len(nodes)) == 1)
    kept = {op_of(name) for name in fetched}
    may_go &= np.array([node.name not in kept for node in nodes], dtype=bool)
    goes = (edges.producer >= 0) & (edges.output >= 0) & is_sum[edges.consumer]
    goes &= may_go[edges.producer]
    joins = dict(zip(edges.producer[goes].tolist(), edges.consumer[goes].tolist(), strict=True))
    for node in sorted(joins, reverse=True):  # nodes come in topological order
        joins[node] = last = joins.get(joins[node], joins[node])
        number = len(data_inputs(nodes[node]))
        extra[last] += (number - 1) * int(outputs.num_bytes[outputs.first[node]])
    return extra
