"""What kernels of a CPU allocate that no output is, and what they copy instead of sharing it.

The sizes are those of TensorFlow's own kernels for one thread, as a worker has it, without oneDNN.
"""

import math
from collections.abc import Sequence
from typing import Any

from graphs import op_types
from graphs.building.shapes import TensorProperties
from graphs.names import op_of, source_of
from graphs.tensor_protos import Shape

# conv_grad_filter_ops.cc and conv_grad_input_ops.h have these for the sizes of caches.
_L2_BYTES, _L3_BYTES = 256 << 10, 30 << 20

_SPARSE_ACCESS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply")
_DENSE_UPDATE = ("ResourceApply", "AssignAddVariableOp", "AssignSubVariableOp")


def workspace_bytes(node: Any, properties: TensorProperties) -> int:
    """What a node's kernel takes while it runs; 0 where a size that it needs is not known."""
    if node.op == "Conv2DBackpropFilter":
        return _patches(properties.shape_of[node.name][0], node, properties, every_shard=True)
    if node.op == "Conv2DBackpropInput":
        return _patches(properties.shape(node.input[1]), node, properties, every_shard=False)
    if node.op == "MaxPoolGrad":  # int64: where each maximum was
        return 8 * properties.num_bytes(node.input[1]) // _width(node, properties)
    return 0


def _patches(kernel: Shape, node: Any, properties: TensorProperties, every_shard: bool) -> int:
    """Of a convolution's gradient: patches of as many images as fill the cache, however few are."""
    gradient = properties.shape(node.input[2])
    if kernel is None or gradient is None or min(*kernel, *gradient) <= 0:
        return 0
    *window, num_channels = kernel
    pixels, patch = math.prod(gradient[1:3]), math.prod(window)
    width = _width(node, properties)
    one_image = pixels * patch + pixels * num_channels + patch * num_channels
    several = every_shard or (gradient[0] > 1 and one_image < _L2_BYTES // width)
    return width * pixels * patch * (-(-_L3_BYTES // width // one_image) if several else 1)


def _width(node: Any, properties: TensorProperties) -> int:
    import tensorflow as tf

    return max(int(tf.as_dtype(properties.dtype_of[node.name][0]).size), 1)


def copied_variables(nodes: Sequence[Any]) -> tuple[set[int], dict[int, str]]:
    """What is copied of variables of which a step also reads or writes single rows.

    TensorFlow then lets no read share the variable's buffer, and updates a copy of it as a whole.

    Returns:
      Indices of the nodes that read such a variable; {node that updates it: VarHandleOps}.
    """
    of_name = {node.name: node for node in nodes}
    reads: list[tuple[int, str]] = []
    updates: list[tuple[int, str]] = []
    in_rows = set()
    for index, node in enumerate(nodes):
        is_update = node.op.startswith(_DENSE_UPDATE)
        if node.op != "ReadVariableOp" and not is_update and not node.op.startswith(_SPARSE_ACCESS):
            continue
        variable = op_of(source_of(node.input[0], of_name, op_types.HANDLE))
        if node.op == "ReadVariableOp":
            reads.append((index, variable))
        elif is_update:
            updates.append((index, variable))
        else:
            in_rows.add(variable)
    return (
        {index for index, variable in reads if variable in in_rows},
        {index: variable for index, variable in updates if variable in in_rows},
    )
