"""The placed graph as TensorBoard's graph view wants it: coloured by device, without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from graphs.flat_graph import FlatGraph
from graphs.op_graph import IntArray

KEPT_ATTRIBUTES = ("dtype", "T", "_output_shapes", "shape", "_class")


def placed_graph(
    flat: FlatGraph, op_of_node: IntArray, device_of_op: IntArray, device_names: Sequence[str]
) -> Any:
    """The opened run as a tf.compat.v1.GraphDef: every node with the device of its op.

    Args:
      flat: the run with its calls opened; nodes are named by their call path.
      op_of_node: i4[nodes] of flat.graph_def.
      device_of_op: i4[N].
      device_names: [D].
    """
    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(flat.graph_def.versions)
    for node, op in zip(flat.graph_def.node, op_of_node.tolist(), strict=True):
        placed = graph.node.add(name=node.name, op=node.op, input=node.input)
        placed.device = device_names[int(device_of_op[op])]
        for key in KEPT_ATTRIBUTES:
            if key in node.attr:
                placed.attr[key].CopyFrom(node.attr[key])
    return graph
