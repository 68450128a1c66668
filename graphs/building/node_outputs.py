"""The outputs of all nodes as arrays, of which nodes that are alike share what is known."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.building.shapes import TensorProperties
from graphs.op_graph import SHAPE_DIMS, IntArray, LongArray
from graphs.protos import NodeDef, Shape

_MAX_DIM = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class NodeOutputs:
    """Node after node, its outputs in their order.

    Attributes:
      node: i8[O] index of the node.
      output: i8[O] which of its outputs.
      num_bytes: i8[O].
      shape: i4[O, 4] as OpGraph.tensor_shape.
      dtype: [O] names.
      first: i8[nodes + 1] where the outputs of each node begin.
    """

    node: LongArray
    output: LongArray
    num_bytes: LongArray
    shape: IntArray
    dtype: npt.NDArray[np.object_]
    first: LongArray


def outputs_of(nodes: Sequence[NodeDef], properties: TensorProperties) -> NodeOutputs:
    """The outputs of NodeDefs; a node that nobody knows of has none."""
    table: dict[int, int] = {}  # {a list of bytes: where what it is of begins in these}
    num_bytes: list[int] = []
    shapes: list[Sequence[int]] = []
    dtypes: list[str] = []
    begin, count = [], []
    for node in nodes:
        sizes = properties.bytes_of.get(node.name, ())
        if id(sizes) not in table:
            table[id(sizes)] = len(num_bytes)
            if sizes:
                num_bytes += sizes
                shapes += [_leading(shape) for shape in properties.shape_of[node.name]]
                dtypes += properties.dtype_of[node.name]
        begin.append(table[id(sizes)])
        count.append(len(sizes))
    first = np.zeros(len(count) + 1, dtype=np.int64)
    np.cumsum(count, out=first[1:])
    node_of_output = np.repeat(np.arange(len(count)), count)
    output = np.arange(len(node_of_output)) - first[node_of_output]
    row = np.array(begin, dtype=np.int64)[node_of_output] + output
    return NodeOutputs(
        node_of_output,
        output,
        np.array(num_bytes, dtype=np.int64)[row],
        np.array(shapes, dtype=np.int32).reshape(-1, SHAPE_DIMS)[row],
        np.array(dtypes, dtype=object)[row],
        first,
    )


def _leading(shape: Shape) -> Sequence[int]:
    """The leading dimensions of a shape, -1 where there is none or it is unknown."""
    known = [min(size, _MAX_DIM) for size in (shape or ())[:SHAPE_DIMS]]
    return known + [-1] * (SHAPE_DIMS - len(known))
