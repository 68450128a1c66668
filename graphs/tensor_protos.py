"""Shapes, dtypes and placeholders as TensorFlow's protos have them.

A shape is a tuple of sizes, -1 for an unknown one; None stands for an unknown rank.
"""

import numpy as np

from graphs.errors import ModelError
from graphs.protos import NodeDef, ShapeProto

Shape = tuple[int, ...] | None


def shape_of(proto: ShapeProto) -> Shape:
    """The shape that a TensorShapeProto says."""
    return None if proto.unknown_rank else tuple(int(dim.size) for dim in proto.dim)


def is_open(shape: Shape) -> bool:
    """Whether a rank or a dimension is not known."""
    return shape is None or min(shape, default=0) < 0


def shape_proto(shape: Shape) -> ShapeProto:
    """The TensorShapeProto of a shape."""
    from tensorflow.core.framework import tensor_shape_pb2

    if shape is None:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    proto = tensor_shape_pb2.TensorShapeProto()
    for size in shape:
        proto.dim.add(size=size)
    return proto


def placeholder(name: str, dtype: str, shape: Shape) -> NodeDef:
    """A NodeDef of a placeholder of this name, dtype name and shape."""
    import tensorflow as tf
    from tensorflow.core.framework import node_def_pb2

    node = node_def_pb2.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = tf.as_dtype(dtype).as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape_proto(shape))
    return node


def constant(node: NodeDef) -> np.ndarray | None:
    """The value of a Const; None where it is damaged."""
    import tensorflow as tf
    from google.protobuf import message

    try:
        return np.asarray(tf.make_ndarray(node.attr["value"].tensor))
    except (TypeError, ValueError, message.Error):
        return None


def dtype_name(enum: int, of: str) -> str:
    """The name of a DataType; that of a reference type is the name of what it refers to.

    Raises:
      ModelError: TensorFlow has no such type; `of` says what has it.
    """
    import tensorflow as tf

    try:
        return str(tf.as_dtype(enum).base_dtype.name)
    except TypeError as error:
        raise ModelError(
            f"reading the graph: {of} has the unknown dtype {enum}; the model is damaged or made "
            "by a newer TensorFlow"
        ) from error
