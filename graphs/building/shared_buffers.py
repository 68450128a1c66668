"""Which outputs are the buffer of an input, or take it over where nothing else needs it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from graphs import op_types
from graphs.building.constant_values import HANDS_ON
from graphs.building.node_outputs import NodeOutputs
from graphs.graph_edges import GraphEdges
from graphs.names import parse_input
from graphs.op_graph import BoolArray, LongArray
from graphs.protos import NodeDef

_HELD = 4
"""Of the terms of an AddN that is joined with a later one, so many count from its own run on. All
of them are its inputs, and count as such at that run, too: more would be counted twice."""
# A read variable's buffer is held in any case.
_HAND_ON = op_types.ALIASES - {"ReadVariableOp"}


class SharedOutputs(NamedTuple):
    """What each output of all nodes has to do with other buffers.

    Attributes:
      shares: i8[O] as OpGraph.tensor_shares, of outputs.
      takes_over: bool[O] as OpGraph.tensor_takes_over.
      buffers: i8[O] how many of its size the node allocates, unless it only hands one on.
      at_last: i8[O] bytes that are held while the node runs: terms of AddN that it is joined with.
    """

    shares: LongArray
    takes_over: BoolArray
    buffers: LongArray
    at_last: LongArray


def shared_outputs(
    nodes: Sequence[NodeDef],
    edges: GraphEdges,
    outputs: NodeOutputs,
    fed_or_fetched: Collection[str],
    hands_on: Sequence[bool] | BoolArray,
) -> SharedOutputs:
    """Finds whose buffer each output is.

    Of several inputs that an op may take over, the one with fewest users counts: which one
    TensorFlow takes is known only when it runs. Grappler joins AddN of AddN to one that adds all
    terms at once, which are held until then: each but the last of these counts as all but one of
    its own terms, beside what the one before it holds. Of many terms, such as gradients of steps
    that a tape adds in parts, most count where the last AddN runs: more and more come until then.

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
    ones = np.ones(len(shares), dtype=np.int64)
    found = SharedOutputs(shares, takes_over, ones, np.zeros_like(ones))
    _join_additions(nodes, edges, of_edge, outputs, kept, found)
    shares[kept], takes_over[kept] = kept, False
    return found


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


def _join_additions(
    nodes: Sequence[NodeDef],
    edges: GraphEdges,
    of_edge: LongArray,
    outputs: NodeOutputs,
    kept: Collection[int],
    found: SharedOutputs,
) -> None:
    """Changes what is found of AddN that are joined."""
    is_sum = np.array([node.op == "AddN" for node in nodes], dtype=bool)
    # What is read twice, or what a control edge waits for, stays as it is.
    may_go = is_sum & (np.bincount(edges.producer[edges.producer >= 0], minlength=len(nodes)) == 1)
    goes = np.flatnonzero((of_edge >= 0) & is_sum[edges.consumer] & may_go[edges.producer])
    joined = dict(zip(of_edge[goes].tolist(), edges.consumer[goes].tolist(), strict=True))
    for output in kept:
        joined.pop(output, None)
    sums = {int(outputs.node[term]) for term in joined} | set(joined.values())
    last: dict[int, int] = {}
    for node in sorted(sums, reverse=True):  # nodes come in topological order
        total, terms = int(outputs.first[node]), int(edges.first[node + 1] - edges.first[node])
        found.shares[total], found.takes_over[total] = -1, False
        last[node] = total
        if total in joined:
            last[node] = last[joined[total]]
            inputs = of_edge[edges.first[node] : edges.first[node + 1]].tolist()
            found.shares[total] = next((term for term in inputs if term in joined), -1)
            held = min(terms - 1, _HELD)
            found.buffers[total] = max(held, 1)
            found.at_last[last[node]] += (terms - 1 - held) * outputs.num_bytes[total]
