"""A large case made narrower: smaller sizes of what isn't the batch, the same ones everywhere.

What a rule says of an op knows the states of its tensors, not how wide a weight is. So each wide
size of a case becomes a smaller one wherever it stands: in shapes, and in inputs that hold sizes.
Sizes that differ stay different, and none becomes one that is there already. What doesn't fit
together so (a size that is the product of others) can't be run, and is tried as wide as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rewrite.split.op_case import CaseInput, OpCase, Shape
from rewrite.split.states import Sharded, State

_WIDE = 32
"""Sizes up to that stay."""
_NARROWEST = 24
_REST = 8
"""Sizes keep their rest by that: what is even stays even, and a window of up to that many places
still fits between an image and the next one, where it did."""
_MOST_SIZES = 8
"""A known input of more elements holds something else than sizes."""


def narrower_case(case: OpCase) -> OpCase | None:
    """The case with smaller sizes; None where it has no wide ones, or they may stand elsewhere."""
    if case.library is not None or case.lists or any(each.is_list for each in case.inputs):
        return None
    if case.node.op == "Reshape":
        return None  # its sizes are products of others
    narrow = _narrow_sizes(case)
    if not narrow or any(size >= _WIDE for size in _sizes_in_attributes(case.node)):
        return None
    if case.node != case.copy:
        return None
    outputs = zip(case.shapes, case.outputs, strict=True)
    return dataclasses.replace(
        case,
        inputs=tuple(_input(each, narrow) for each in case.inputs),
        shapes=[_shape(*each, narrow) for each in outputs],
    )


def _narrow_sizes(case: OpCase) -> dict[int, int]:
    """{wide size: what it becomes}; those of a known input stay, for its values do."""
    inputs = [(each.shape, each.state) for each in case.inputs]
    shapes = [*inputs, *zip(case.shapes, case.outputs, strict=True)]
    there = {size for shape, _ in shapes for size in shape or ()}
    of_known = {size for each in case.inputs if each.value is not None for size in each.shape or ()}
    wide = {size for each in shapes for size in _own_sizes(*each) if size > _WIDE} - of_known
    narrow: dict[int, int] = {}
    number = _NARROWEST - 1
    for size in sorted(wide):
        number += (size - number - 1) % _REST + 1
        while number in there:
            number += _REST
        if number < size:
            narrow[size] = number
    return narrow


def _own_sizes(shape: Shape, state: State) -> Iterator[int]:
    """The sizes of a tensor that the batch has no part in."""
    for axis, size in enumerate(shape or ()):
        if not (isinstance(state, Sharded) and axis == state.axis):
            yield size


def _shape(shape: Shape, state: State, narrow: Mapping[int, int]) -> Shape:
    if shape is None:
        return None
    cut = state.axis if isinstance(state, Sharded) else -1
    return tuple(s if axis == cut else narrow.get(s, s) for axis, s in enumerate(shape))


def _input(given: CaseInput, narrow: Mapping[int, int]) -> CaseInput:
    """An input with narrow sizes, in its shape and where it holds sizes."""
    value = given.value
    if value is not None and value.dtype.kind in "iu" and value.size <= _MOST_SIZES:
        flat = [
            size if at in given.sizes_at else narrow.get(size, size)
            for at, size in enumerate(value.reshape(-1).tolist())
        ]
        value = np.array(flat, value.dtype).reshape(value.shape)
    return dataclasses.replace(given, shape=_shape(given.shape, given.state, narrow), value=value)


def _sizes_in_attributes(node: Any) -> Iterator[int]:
    """All integers of an op's attributes, and of shapes there."""
    for value in node.attr.values():
        yield from (value.i, *value.list.i)
        for shape in (value.shape, *value.list.shape):
            yield from (dim.size for dim in shape.dim)
