"""What the small ops of a split step that compute sizes and shares give, with nothing but numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphs.building.op_outputs import argument_types
from rewrite.pass_base import RewriteError

_BINARY = {
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "RealDiv": np.true_divide,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
}
NUMBER_OPS = frozenset(
    {*_BINARY, "Const", "Identity", "Slice", "Squeeze", "Cast", "Unpack", "Prod", "Sum", "Cumsum",
     "Pack", "Size", "OneHot", "SelectV2"}
)  # fmt: skip
_KNOWN_ATTRS = frozenset(
    "T Tidx TI Index SrcT DstT Truncate keep_dims num N axis exclusive reverse out_type value "
    "dtype".split()
)


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
    if node.op == "Size":
        return [inputs[0].size]
    if node.op == "SelectV2":
        return [np.where(*inputs)]
    if node.op == "OneHot" and _int(node, "axis") == -1:
        hot, depth, on, off = inputs
        return [np.where(np.arange(int(depth)) == hot, on, off)]
    if node.op == "Pack" and _int(node, "N") == len(inputs):
        return [np.stack(inputs, axis=_int(node, "axis"))]
    if node.op == "Unpack":
        rows = np.moveaxis(inputs[0], _int(node, "axis"), 0)
        if _int(node, "num") == len(rows):
            return list(rows)
    return _over_axis(node, *inputs)


def _over_axis(node: Any, value: np.ndarray, axis: np.ndarray) -> list[Any]:
    """A sum, a product, or running sums that leave out the last one."""
    axes = tuple(int(each) for each in np.atleast_1d(axis))
    on = {key for key, attr in node.attr.items() if attr.b}
    if node.op in ("Prod", "Sum") and not on:
        reduce = np.prod if node.op == "Prod" else np.sum
        return [reduce(value, axis=axes, dtype=value.dtype)]
    if node.op == "Cumsum" and on == {"exclusive"}:
        return [np.cumsum(value, axis=axes[0]) - value]
    raise RewriteError(f"reading {node.name!r}: a {node.op} with these attributes has no place")


def _int(node: Any, attribute: str) -> int:
    """An attribute that is a whole number; 0 where it is left out."""
    return int(node.attr[attribute].i) if attribute in node.attr else 0
