"""TensorFlow's types, Keras' and JSON's by their names; shapes and dtypes as protos have them.

TensorFlow and Keras come without stubs, so that mypy takes them as Any. A shape is a tuple of
sizes, -1 for an unknown one; None stands for an unknown rank.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import graphs.late_tensorflow as tf
from graphs.errors import ModelError

Message = Any  # any protobuf message
NodeDef = Any  # one op of a graph
GraphDef = Any  # ops, and the functions that they call
FunctionDef = Any
FunctionLibrary = Any
OpDef = Any  # inputs, outputs and attributes of an op type or a function
MetaGraphDef = Any  # a graph with its signatures, collections and how its variables are saved
SavedModelProto = Any  # MetaGraphDefs: the file `saved_model.pb`
ObjectGraph = Any  # the objects of a SavedModel, which TensorFlow 2 loads
SignatureDef = Any
RepeatedNodes = Any  # of a proto, to which nodes are added in place
Nodes = Mapping[str, NodeDef]  # by their names
Library = Mapping[str, FunctionDef]
Signatures = Mapping[str, SignatureDef]
TensorInfo = Any  # an input or output of a SignatureDef
ShapeProto = Any
AttrValue = Any

DType = Any
TensorShape = Any
Tensor = Any
TfVariable = Any  # tf.Variable
Operation = Any
Graph = Any  # tf.Graph
TfFunction = Any  # tf.function's, a signature, a ConcreteFunction
Trackable = Any  # what tf.saved_model.load gives
Session = Any
SessionConfig = Any  # tf.compat.v1.ConfigProto
Structure = Any  # tensors in tuples, lists and dictionaries

KerasModel = Any
KerasObject = Any  # a loss, an optimizer, a callback

Json = Any  # what json.loads makes
Pickled = Any  # what two processes send each other, who know what it is
JsonObject = Mapping[str, Json]
Shape = tuple[int, ...] | None


def attribute(node: NodeDef, name: str) -> AttrValue:
    """An attribute that a node may leave to its op's default: an empty one then.

    `node.attr[name]` would add an empty one to the node, which no TensorFlow reads.
    """
    return node.attr[name] if name in node.attr else _no_value()


@functools.cache
def _no_value() -> AttrValue:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue as Message

    return Message()


def shape_of(proto: ShapeProto) -> Shape:
    """The shape that a TensorShapeProto says."""
    return None if proto.unknown_rank else tuple(int(dim.size) for dim in proto.dim)


def is_open(shape: Shape) -> bool:
    """Whether a rank or a dimension is not known."""
    return shape is None or min(shape, default=0) < 0


def shape_proto(shape: Shape) -> ShapeProto:
    """The TensorShapeProto of a shape."""
    from tensorflow.core.framework import tensor_shape_pb2

    sizes = [tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in shape or ()]
    return tensor_shape_pb2.TensorShapeProto(unknown_rank=shape is None, dim=sizes)


def placeholder(name: str, dtype: str, shape: Shape) -> NodeDef:
    """A NodeDef of a placeholder of this name, dtype name and shape."""
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = tf.as_dtype(dtype).as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape_proto(shape))
    return node


def constant(node: NodeDef) -> np.ndarray | None:
    """The value of a Const; None where it is damaged."""
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
    try:
        return str(tf.as_dtype(enum).base_dtype.name)
    except TypeError as error:
        raise ModelError(
            f"reading the graph: {of} has the unknown dtype {enum}; the model is damaged or made "
            "by a newer TensorFlow"
        ) from error
