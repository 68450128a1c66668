"""How many outputs an op has, and where each of them lies among all."""

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


def num_outputs(node: Any, library: Mapping[str, Any]) -> int:
    """How many tensors a NodeDef makes, calls by name included."""
    return sum(_sizes(node, library).values())


def output_offsets(node: Any, library: Mapping[str, Any]) -> dict[str, int]:
    """{output argument: index of its first tensor} of a NodeDef, calls by name included."""
    offsets = {}
    position = 0
    for name, size in _sizes(node, library).items():
        offsets[name] = position
        position += size
    return offsets


def _sizes(node: Any, library: Mapping[str, Any]) -> dict[str, int]:
    """{output argument: how many tensors it is}, in the op's order."""
    if node.op in library:
        signature = library[node.op].signature
    else:
        signature = op_definition(node.op, node.name)
    sizes = {}
    for argument in signature.output_arg:
        if argument.number_attr:
            sizes[argument.name] = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            sizes[argument.name] = len(node.attr[argument.type_list_attr].list.type)
        else:
            sizes[argument.name] = 1
    return sizes
