"""TensorFlow's types by their names: it comes without stubs, so that mypy takes them as Any."""

from typing import Any

NodeDef = Any
"""One op of a graph."""
GraphDef = Any
"""Ops, and the functions that they call."""
FunctionDef = Any
MetaGraphDef = Any
"""A graph with its signatures, collections and how its variables are saved."""
SavedModelProto = Any
"""One or more MetaGraphDefs: the file `saved_model.pb`."""
AttrValue = Any
DType = Any
Tensor = Any
Session = Any
