"""Where each output of an op lies among all of its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphs.errors import ModelError


def op_definition(op_type: str, node_name: str = "") -> Any:
    """TensorFlow's OpDef.

    Raises:
      ModelError: this TensorFlow doesn't know the op.
    """
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op_type)
    if definition is None:
        raise ModelError(
            f"reading op {node_name!r}: this TensorFlow has no op {op_type!r}; load the library "
            "that defines it, or save the model with ops of TensorFlow itself"
        )
    return definition


def output_offsets(node: Any, library: Mapping[str, Any]) -> dict[str, int]:
    """{output argument: index of its first tensor} of a NodeDef, calls by name included."""
    if node.op in library:
        signature = library[node.op].signature
    else:
        signature = op_definition(node.op, node.name)
    offsets = {}
    position = 0
    for argument in signature.output_arg:
        offsets[argument.name] = position
        if argument.number_attr:
            position += node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            position += len(node.attr[argument.type_list_attr].list.type)
        else:
            position += 1
    return offsets
