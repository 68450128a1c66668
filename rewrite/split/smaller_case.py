"""A large case made smaller: the same op, the same answer, fewer entries of the batch and shards.

What a rule says of an op (along which axis it is cut, what its parts combine to) knows neither how
many entries there are nor how many shards. So a case that takes long, or much memory, is run with a
few shards of a few entries. An op that can't be run so, or that gives something else, is run as it
is in the step: only that tells a defect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rewrite.split.narrower_case import narrower_case
from rewrite.split.op_case import CaseInput, OpCase, Shape
from rewrite.split.states import Sharded, State

_FEWEST = 2
"""Entries in a shard: of one entry, an axis could be taken for one that is broadcast."""
_MOST_SHARDS = 3
_MOST_ELEMENTS = 2**20
_MOST_WORK = 2.0**26
"""An op of no more takes some tens of milliseconds."""
_MOST_BYTES = 2**26


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
