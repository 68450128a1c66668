"""A large case made smaller: the same op, the same answer, fewer entries, shards and other sizes.

What a rule says of an op (along which axis it is cut, what its parts combine to) knows neither how
many entries there are, nor how many shards, nor how wide a weight is. So a case that takes long is
run with a few shards of a few entries, and each wide size becomes a smaller one wherever it stands:
in shapes, and in inputs that hold sizes. Sizes that differ stay different. What can't be run so (a
size that is the product of others), or gives something else, is run as it is: only that tells a
defect.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.protos import NodeDef
from rewrite.split.prove.ops.op_case import CaseInput, OpCase, Shape
from rewrite.split.states import Sharded, State

_FEWEST = 2
"""Entries in a shard: of one entry, an axis could be taken for one that is broadcast."""
_MOST_SHARDS = 3
_MOST_ELEMENTS = 2**20
_MOST_WORK = 2.0**26
"""An op of no more takes some tens of milliseconds."""
_MOST_BYTES = 2**26
_WIDE = 32
"""Sizes up to that stay."""
_NARROWEST = 24
_REST = 8
"""Sizes keep their rest by that: what is even stays even, and a window of up to that many places
still fits between an image and the next one, where it did."""
_MOST_SIZES = 8
"""A known input of more elements holds something else than sizes."""


def smaller_cases(case: OpCase) -> list[OpCase]:
    """What stands for a large case, smallest first: with narrow weights besides, or as they are."""
    smaller = smaller_case(case)
    narrower = narrower_case(smaller or case) if _is_large(smaller or case) else None
    return [each for each in (narrower, smaller) if each is not None]


def smaller_case(case: OpCase) -> OpCase | None:
    """The case in few shards of few entries; None where it is small, or its sizes can't change."""
    if not _is_large(case):
        return None
    batch, fewer = sum(case.sizes), _fewer(case.sizes)
    if sum(fewer) >= batch or case.library is not None or case.node != case.copy:
        return None  # what functions and attributes hold of the batch is not known here
    inputs = [_input(each, batch, fewer) for each in case.inputs]
    states = enumerate(zip(case.shapes, case.outputs, strict=True))
    shapes = [s if i in case.lists else _shape(s, o, batch, fewer) for i, (s, o) in states]
    lists = {
        index: _shape((0, *(shape or ())), case.outputs[index], batch, fewer)
        for index, shape in case.lists.items()
    }
    known = [each for each in inputs if each is not None]
    elements = {index: shape[1:] for index, shape in lists.items() if shape is not None}
    if len(known) < len(inputs) or None in shapes or len(elements) < len(lists):
        return None
    return dataclasses.replace(
        case, inputs=tuple(known), shapes=shapes, lists=elements, sizes=fewer
    )


def _is_large(case: OpCase) -> bool:
    return (
        case.num_elements > _MOST_ELEMENTS or case.work > _MOST_WORK or case.num_bytes > _MOST_BYTES
    )


def _fewer(sizes: Sequence[int]) -> tuple[int, ...]:
    """As few as the proof can do with; where shards differ by one entry, these do, too."""
    least = min(sizes)
    larger = sum(size > least for size in sizes)
    count = min(len(sizes), _MOST_SHARDS)
    kept = min(larger, max(count // 2, count - (len(sizes) - larger)))
    return tuple(_FEWEST + (shard < kept) for shard in range(count))


def _input(given: CaseInput, batch: int, fewer: Sequence[int]) -> CaseInput | None:
    shape, value, entries = given.shape, given.value, sum(fewer)
    if given.sizes_at and given.value_of(batch).tolist() != np.asarray(value).tolist():
        return None  # these sizes are not what they seem to be
    if given.sizes_at:
        value = given.value_of(entries)
    if not isinstance(given.state, Sharded):
        return dataclasses.replace(given, value=value)
    shape = _shape(shape, given.state, batch, fewer)
    if shape is None:
        return None
    if value is not None:
        value = _first_entries(value, given.state, batch, entries)
    return dataclasses.replace(given, shape=shape, value=value)


def _shape(shape: Shape, state: State, batch: int, fewer: Sequence[int]) -> Shape:
    """A tensor's shape with fewer entries; None where it isn't cut as its state says."""
    if not isinstance(state, Sharded):
        return shape
    if shape is None or state.axis >= len(shape) or shape[state.axis] != state.size(batch):
        return None
    return (*shape[: state.axis], state.size(sum(fewer)), *shape[state.axis + 1 :])


def _first_entries(value: np.ndarray, state: Sharded, batch: int, entries: int) -> np.ndarray:
    """The first entries of the batch in a known tensor."""
    before, after = value.shape[: state.axis], value.shape[state.axis + 1 :]
    apart = value.reshape(*before, state.outer, batch, state.inner, *after)
    kept = np.moveaxis(np.moveaxis(apart, state.axis + 1, 0)[:entries], 0, state.axis + 1)
    return kept.reshape(*before, state.size(entries), *after)


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
        inputs=tuple(_narrow_input(each, narrow) for each in case.inputs),
        shapes=[_narrow_shape(*each, narrow) for each in outputs],
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


def _narrow_shape(shape: Shape, state: State, narrow: Mapping[int, int]) -> Shape:
    if shape is None:
        return None
    cut = state.axis if isinstance(state, Sharded) else -1
    return tuple(s if axis == cut else narrow.get(s, s) for axis, s in enumerate(shape))


def _narrow_input(given: CaseInput, narrow: Mapping[int, int]) -> CaseInput:
    """An input with narrow sizes, in its shape and where it holds sizes."""
    value = given.value
    if value is not None and value.dtype.kind in "iu" and value.size <= _MOST_SIZES:
        flat = [
            size if at in given.sizes_at else narrow.get(size, size)
            for at, size in enumerate(value.reshape(-1).tolist())
        ]
        value = np.array(flat, value.dtype).reshape(value.shape)
    return dataclasses.replace(
        given, shape=_narrow_shape(given.shape, given.state, narrow), value=value
    )


def _sizes_in_attributes(node: NodeDef) -> Iterator[int]:
    """All integers of an op's attributes, and of shapes there."""
    for value in node.attr.values():
        yield from (value.i, *value.list.i)
        for shape in (value.shape, *value.list.shape):
            yield from (dim.size for dim in shape.dim)
