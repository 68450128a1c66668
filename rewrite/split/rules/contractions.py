"""Products that sum over dimensions which their operands share."""

from __future__ import annotations

from rewrite.split.factors import Factors, Labels, split_by_factors
from rewrite.split.op_view import Answer, OpView, StayWhole, is_open
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, broadcast


def matmul(view: OpView) -> Answer:
    """[i, k] by [k, j]; either may come transposed."""
    left: Labels = ["k", "i"] if view.attr("transpose_a").b else ["i", "k"]
    right: Labels = ["j", "k"] if view.attr("transpose_b").b else ["k", "j"]
    return split_by_factors(view, Factors([left, right], [["i", "j"]], {"k": "sum"}))


def batch_matmul(view: OpView) -> Answer:
    """[..., i, k] by [..., k, j], with leading dimensions that are broadcast together."""
    shapes = [each.shape for each in view.inputs]
    result = view.output_shapes[0]
    if result is None or any(is_open((shape or (-1,))[:-2]) for shape in shapes):
        return UNKNOWN_SHAPE  # a dimension of unknown size may be one that is stretched
    leading = result[:-2]
    rows: list[list[str | None]] = [
        list(broadcast((shape or ())[:-2], leading)) for shape in shapes
    ]
    left: list[str | None] = ["k", "i"] if view.attr("adj_x").b else ["i", "k"]
    right: list[str | None] = ["j", "k"] if view.attr("adj_y").b else ["k", "j"]
    out = [*(f"d{axis}" for axis in range(len(leading))), "i", "j"]
    return split_by_factors(view, Factors([rows[0] + left, rows[1] + right], [out], {"k": "sum"}))


def einsum(view: OpView) -> Answer:
    """As its equation says; labels that stand for several dimensions stay whole."""
    equation = view.attr("equation").s.decode().replace(" ", "")
    if "..." in equation:
        return StayWhole("its equation has an ellipsis")
    left, _, out = equation.partition("->")
    rows = left.split(",")
    if any(len(set(row)) < len(row) for row in [*rows, out]):
        return StayWhole("its equation repeats a label")
    reduced = {label: "sum" for row in rows for label in row if label not in out}
    return split_by_factors(view, Factors([list(row) for row in rows], [list(out)], reduced))


def bias_add_grad(view: OpView) -> Answer:
    """Sums over all but the channels."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    labels = [f"d{axis}" for axis in range(len(shape))]
    channel = labels[1 if view.attr("data_format").s == b"NCHW" else -1]
    reduced = {label: "sum" for label in labels if label != channel}
    return split_by_factors(view, Factors([labels], [[channel]], reduced))
