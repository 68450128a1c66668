"""Which outputs are the buffer of an input, or take it over where nothing else needs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphs import op_types
from graphs.building.node_outputs import NodeOutputs
from graphs.graph_edges import GraphEdges
from graphs.names import parse_input
from graphs.op_graph import LongArray

# A read variable's buffer is held in any case.
_HAND_ON = op_types.ALIASES - {"ReadVariableOp"}


def shared_outputs(
    nodes: Sequence[Any], edges: GraphEdges, outputs: NodeOutputs, fed_or_fetched: Collection[str]
) -> LongArray:
    """i8[O]: for each output of all nodes the one whose buffer it shares, as OpGraph.tensor_shares.

    Of several inputs that an op may take over, the one with fewest users counts: which one
    TensorFlow takes is known only when it runs.

    Args:
      nodes: NodeDefs.
      edges: between them.
      outputs: of the nodes.
      fed_or_fetched: tensors and ops; the caller of the step has what these tensors lie in.
    """
    num_outputs = np.diff(outputs.first)[edges.producer]
    reads = (edges.producer >= 0) & (edges.output >= 0) & (edges.output < num_outputs)
    of_edge = np.full(len(edges.output), -1, dtype=np.int64)
    of_edge[reads] = outputs.first[edges.producer[reads]] + edges.output[reads]
    num_users = np.bincount(of_edge[reads], minlength=len(outputs.node)).tolist()
    shares = np.full(len(outputs.node), -1, dtype=np.int64)
    for index, node in enumerate(nodes):
        first, end = outputs.first[index : index + 2].tolist()
        inputs = of_edge[edges.first[index] : edges.first[index + 1]].tolist()
        if first == end or not inputs:
            continue
        if node.op in op_types.TAKES_OVER:
            output, positions = op_types.TAKES_OVER[node.op]
            among = inputs if positions is None else inputs[: positions[-1] + 1][positions[0] :]
            alike = [
                each
                for each in among
                if each >= 0
                and outputs.num_bytes[each] == outputs.num_bytes[first + output]
                and outputs.dtype[each] == outputs.dtype[first + output]
                and inputs.count(each) == 1
            ]
            shares[first + output] = min(alike, key=num_users.__getitem__, default=-1)
        elif node.op in op_types.MERGES:
            # The branches of a conditional: all of them count as run.
            shares[first] = max(inputs, key=lambda i: outputs.num_bytes[i] if i >= 0 else -1)
        elif node.op == "IdentityN":
            shares[first:end] = inputs[: end - first]
        elif node.op in _HAND_ON:
            shares[first:end] = inputs[0]
    number = {node.name: index for index, node in enumerate(nodes)}
    for name in fed_or_fetched:
        each = parse_input(name)
        index = number.get(each.op, -1) if ":" in name else -1
        if index >= 0 and each.output < outputs.first[index + 1] - outputs.first[index]:
            kept = outputs.first[index] + each.output
            while shares[kept] not in (-1, kept) and nodes[outputs.node[kept]].op in _HAND_ON:
                kept = shares[kept]
            shares[kept] = kept
    return shares
