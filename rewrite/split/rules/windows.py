"""Convolutions, pools and their gradients: images are apart, what lies in a window is not."""

from __future__ import annotations

from rewrite.split.factors import Factors, Labels, split_by_factors
from rewrite.split.op_view import Answer, OpView
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE


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
        view,
        lambda image: Factors([image, None, image], [[None] * len(image)], {"n": "sum"}),
    )


def average_pool_gradient(view: OpView) -> Answer:
    """AvgPoolGrad: input 0 holds the shape of the result."""
    return _with_rank(view, lambda image: Factors([None, image], [image], shape_inputs={0: 0}), 1)


def _with_rank(view: OpView, factors, position: int = 0) -> Answer:  # type: ignore[no-untyped-def]
    shape = view.inputs[position].shape
    if shape is None:
        return UNKNOWN_SHAPE
    return split_by_factors(view, factors(_image(len(shape))))
