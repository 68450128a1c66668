"""TensorFlow's types by their names: it comes without stubs, so that mypy takes them as Any."""

from typing import Any

NodeDef = Any  # one op of a graph
GraphDef = Any  # ops, and the functions that they call
FunctionDef = Any
MetaGraphDef = Any  # a graph with its signatures, collections and how its variables are saved
SavedModelProto = Any  # MetaGraphDefs: the file `saved_model.pb`
AttrValue = Any
DType = Any
Tensor = Any
Session = Any
