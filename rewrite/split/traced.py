"""Formulas written with TensorFlow, as the ops that they trace to: templates for a graph."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphs.building.op_outputs import op_definition
from rewrite.split.op_view import attr_of


@dataclasses.dataclass(frozen=True)
class Traced:
    """What a formula makes of inputs a0, a1, ...

    Attributes:
      ops: the ops that it adds.
      outputs: names of the tensors that it returns, which may be inputs.
    """

    ops: Sequence[Any]
    outputs: Sequence[str]

    def copied(
        self, inputs: Sequence[str], name_of: Callable[[str], str]
    ) -> tuple[list[Any], list[str]]:
        """NodeDefs that read other inputs, and the tensors that they return.

        Args:
          inputs: what takes the place of a0, a1, ...
          name_of: the name of an op's copy.
        """
        given = {f"a{i}": name for i, name in enumerate(inputs)}

        def renamed(name: str) -> str:
            control = "^" if name.startswith("^") else ""
            op, colon, index = name.removeprefix("^").partition(":")
            return given.get(op) or f"{control}{name_of(op)}{colon}{index}"

        copies = []
        for op in self.ops:
            node = type(op.node_def)()
            node.CopyFrom(op.node_def)
            node.name = name_of(node.name)
            node.attr.pop("_class", None)
            node.input[:] = [renamed(name) for name in node.input]
            copies.append(node)
        return copies, [renamed(tensor) for tensor in self.outputs]


_TRACED: dict[tuple[Any, ...], Traced] = {}


def traced(
    node: Any, formula: Callable[..., Sequence[Any]], inputs: Sequence[tuple[str, Any]]
) -> Traced:
    """Traces a formula for an op; for others like it once.

    Args:
      node: the op.
      formula: from its attributes and tensors to tensors.
      inputs: the dtype and the shape, which may be None, of each tensor.
    """
    import tensorflow as tf

    attrs = attributes(node)
    key = formula, repr(sorted(attrs.items())), tuple(inputs)
    if key not in _TRACED:
        with tf.Graph().as_default() as graph:
            given = [
                tf.compat.v1.placeholder(dtype, shape, f"a{i}")
                for i, (dtype, shape) in enumerate(inputs)
            ]
            outputs = [tensor.name for tensor in formula(attrs, *given)]
        ops = [op for op in graph.get_operations() if op.type != "Placeholder"]
        _TRACED[key] = Traced(ops, outputs)
    return _TRACED[key]


def attributes(node: Any) -> Mapping[str, Any]:
    """{attribute: its value}, with the defaults."""
    values = {}
    for attribute in op_definition(node.op, node.name).attr:
        value = attr_of(node, attribute.name)
        kind = value.WhichOneof("value")
        values[attribute.name] = getattr(value, kind) if kind else None
    return values
