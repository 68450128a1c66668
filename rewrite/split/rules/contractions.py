"""Products that sum over dimensions which their operands share."""

from collections.abc import Sequence

from rewrite.split.decision import Answer, is_open
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, broadcast
from rewrite.split.rules.factors import Factors, Labels, split_by_factors
from rewrite.split.rules.op_view import OpView


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
    """As its equation says; a label that a tensor has twice, a diagonal, is not cut."""
    equation = view.attr("equation").s.decode().replace(" ", "")
    left, _, out = equation.partition("->")
    shapes = [each.shape for each in view.inputs]
    rows = _with_ellipses([*left.split(","), out], [*shapes, view.output_shapes[0]])
    if rows is None:
        return UNKNOWN_SHAPE
    twice = {label for row in rows for label in row if row.count(label) > 1}
    *inputs, made = [[None if label in twice else label for label in row] for row in rows]
    reduced = {label: "sum" for row in inputs for label in row if label and label not in made}
    return split_by_factors(view, Factors(inputs, [made], reduced))


def _with_ellipses(
    rows: Sequence[str], shapes: Sequence[tuple[int, ...] | None]
) -> list[list[str | None]] | None:
    """A label for each dimension, also of those that an ellipsis stands for; None if not known.

    Args:
      rows: the terms of an equation, the result last.
      shapes: of these tensors.
    """
    if not any("..." in row for row in rows):
        return [list(row) for row in rows]
    if "..." not in rows[-1] or any(shape is None or is_open(shape) for shape in shapes):
        return None  # a dimension of unknown size may be one that is stretched
    parts = [row.partition("...") for row in rows]
    meant = [
        (shape or ())[len(before) : len(shape or ()) - len(after)]
        for (before, _, after), shape in zip(parts, shapes, strict=True)
    ]
    return [
        [*before, *broadcast(own, meant[-1]), *after] if dots else [*before]
        for (before, dots, after), own in zip(parts, meant, strict=True)
    ]


def bias_add_grad(view: OpView) -> Answer:
    """Sums over all but the channels."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    labels = [f"d{axis}" for axis in range(len(shape))]
    channel = labels[1 if view.attr("data_format").s == b"NCHW" else -1]
    reduced = {label: "sum" for label in labels if label != channel}
    return split_by_factors(view, Factors([labels], [[channel]], reduced))


def _image(rank: int) -> Labels:
    """Images come first in every data format."""
    return ["n", *[None] * (rank - 1)]


def images(view: OpView) -> Answer:
    """Inputs and outputs all hold one entry per image (pools, LRN, resizing, their gradients)."""
    rows: list[Labels | None] = []
    for each in view.inputs:
        if each.shape is None:
            return UNKNOWN_SHAPE
        rows.append(_image(len(each.shape)) if len(each.shape) > 2 else None)
    outputs = []
    for shape in view.output_shapes:
        if shape is None:
            return UNKNOWN_SHAPE
        outputs.append(_image(len(shape)))
    return split_by_factors(view, Factors(rows, outputs))


def convolution(view: OpView) -> Answer:
    """Images by one filter."""
    return _with_rank(view, lambda image: Factors([image, None], [image]))


def input_gradient(view: OpView) -> Answer:
    """Conv*BackpropInput: input 0 holds the shape of the result, input 1 is the filter."""
    if view.inputs[0].shape != (len(view.output_shapes[0] or ()),):
        return UNKNOWN_SHAPE  # it may hold the window's size alone
    return _with_rank(
        view, lambda image: Factors([None, None, image], [image], shape_inputs={0: 0}), 2
    )


def filter_gradient(view: OpView) -> Answer:
    """Conv*BackpropFilter: summed over all images; input 1 is the filter's shape."""
    return _with_rank(
        view, lambda image: Factors([image, None, image], [[None] * len(image)], {"n": "sum"})
    )


def average_pool_gradient(view: OpView) -> Answer:
    """AvgPoolGrad: input 0 holds the shape of the result."""
    return _with_rank(view, lambda image: Factors([None, image], [image], shape_inputs={0: 0}), 1)


def _with_rank(view: OpView, factors, position: int = 0) -> Answer:  # type: ignore[no-untyped-def]
    shape = view.inputs[position].shape
    if shape is None:
        return UNKNOWN_SHAPE
    return split_by_factors(view, factors(_image(len(shape))))
