"""What the small ops of a split step that compute sizes and shares give, with nothing but numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rewrite.pass_base import RewriteError
from rewrite.split.wide_types import argument_types

_BINARY = {
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "RealDiv": np.true_divide,
    "GreaterEqual": np.greater_equal,
}
NUMBER_OPS = frozenset(
    {*_BINARY, "Const", "Identity", "Slice", "Squeeze", "Cast", "Unpack", "Prod"}
)
_KNOWN_ATTRS = frozenset("T Tidx Index SrcT DstT Truncate keep_dims num axis value dtype".split())


def numbers(node: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of an op of `NUMBER_OPS`.

    Raises:
      RewriteError: it is none of these ops, or has an attribute or an input that doesn't fit.
    """
    import tensorflow as tf

    if node.op not in NUMBER_OPS or not set(node.attr) <= _KNOWN_ATTRS:
        raise RewriteError(f"reading {node.name!r}: a {node.op} with these attributes has no place")
    if node.op == "Const":
        if node.attr["dtype"].type != node.attr["value"].tensor.dtype:
            raise RewriteError(f"reading {node.name!r}: its value is of another type than it says")
        return [tf.make_ndarray(node.attr["value"].tensor)]
    wanted = [tf.as_dtype(number) for number in argument_types(node, {})]
    if wanted != [tf.as_dtype(value.dtype) for value in inputs]:
        raise RewriteError(f"reading {node.name!r}: its inputs are of other types than it says")
    results = _results(node, inputs)
    made = argument_types(node, {}, of_outputs=True)
    if node.op == "Unpack":
        made = [node.attr["T"].type] * len(results)
    return [
        np.asarray(result).astype(tf.as_dtype(number).as_numpy_dtype)
        for result, number in zip(results, made, strict=True)
    ]


def _results(node: Any, inputs: Sequence[np.ndarray]) -> list[Any]:
    if node.op in _BINARY:
        return [_BINARY[node.op](*inputs)]
    if node.op in ("Identity", "Cast"):
        return [inputs[0]]
    if node.op == "Slice":
        value, begin, size = inputs
        return [value[int(begin[0]) : int(begin[0]) + int(size[0])]]
    if node.op == "Squeeze":
        return [np.squeeze(inputs[0])]
    if node.op == "Prod":
        return [np.prod(inputs[0], axis=tuple(np.atleast_1d(inputs[1])), dtype=inputs[0].dtype)]
    if "axis" in node.attr or "num" not in node.attr or node.attr["num"].i != len(inputs[0]):
        raise RewriteError(f"reading {node.name!r}: it doesn't take all of its input apart")
    return list(inputs[0])
