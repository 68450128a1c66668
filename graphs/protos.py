"""TensorFlow's types, Keras' and JSON's by their names.

TensorFlow and Keras come without stubs, so that mypy takes them as Any.
"""

import functools
from collections.abc import Mapping
from typing import Any

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


def attribute(node: NodeDef, name: str) -> AttrValue:
    """An attribute that a node may leave to its op's default: an empty one then.

    `node.attr[name]` would add an empty one to the node, which no TensorFlow reads.
    """
    return node.attr[name] if name in node.attr else _no_value()


@functools.cache
def _no_value() -> AttrValue:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue as Message

    return Message()
