"""Whether an op of a split step is the op that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.names import data_inputs
from rewrite.compare_graphs import same_content
from rewrite.pass_base import RewriteError
from rewrite.split.op_cases import bodies_of
from rewrite.split.op_view import Split
from rewrite.split.states import Sharded

_DERIVED = frozenset({"_output_shapes", "_class"})
_INT32 = 3


def require_same_op(node: Any, here: Any, answer: Split | None) -> None:
    """Raises RewriteError unless `here` is `node`: type and attributes but for decided ones.

    Args:
      node: an op of the unsplit step.
      here: what stands for it, whole or for one shard.
      answer: what was decided of it; None where it stays as it is.
    """
    own = set() if answer is None else _of_functions(answer)
    without = {*_DERIVED, *own}
    wanted = {key: value for key, value in node.attr.items() if key not in without}
    wanted.update({} if answer is None else answer.attrs)
    found = {key: value for key, value in here.attr.items() if key not in without}
    if here.op != node.op or not _same_attributes(found, wanted):
        raise RewriteError(f"reading {here.name!r} of the split step: it is another op")
    more = len(data_inputs(here)) - len(data_inputs(node))
    if more and (more != 1 or not own):  # functions of a shard may read its numbers
        raise RewriteError(f"reading {here.name!r} of the split step: it reads more or less")
    if own:
        assert answer is not None
        _require_types(node, here, answer, more)


def _of_functions(answer: Split) -> set[str]:
    """The attributes in which copies that run functions of their own differ."""
    bodies = {key.partition("/")[0] for key in bodies_of(answer)}
    return bodies | {"output_shapes", "T", "Tin"} if bodies else set()


def _require_types(node: Any, here: Any, answer: Split, more: int) -> None:
    """The types and shapes of what a copy hands to its functions, and gets."""
    is_right = {*node.attr} - _DERIVED == {*here.attr} - _DERIVED
    for key in ("T", "Tin"):
        if key in node.attr:
            wanted = [*node.attr[key].list.type, *[_INT32] * more]
            is_right &= list(here.attr[key].list.type) == wanted
    for key in {key.partition("/")[0] for key in bodies_of(answer)}:
        before, after = node.attr[key], here.attr[key]
        is_right &= len(before.list.func) == len(after.list.func)
        is_right &= all(not each.attr for each in (after.func, *after.list.func))
    if "output_shapes" in node.attr:
        shapes = [_sizes(shape) for shape in node.attr["output_shapes"].list.shape]
        found = [_sizes(shape) for shape in here.attr["output_shapes"].list.shape]
        is_right &= len(found) in (len(shapes), len(shapes) + more)
        for shape, mine, state in zip(shapes, found, answer.outputs, strict=False):
            is_cut = isinstance(state, Sharded) and shape is not None and state.axis < len(shape)
            if is_cut and shape is not None and isinstance(state, Sharded):
                shape = [*shape[: state.axis], -1, *shape[state.axis + 1 :]]
            is_right &= shape == mine
    if not is_right:
        raise RewriteError(f"reading {here.name!r} of the split step: it hands on something else")


def _sizes(shape: Any) -> list[int] | None:
    return None if shape.unknown_rank else [dim.size for dim in shape.dim]


def _same_attributes(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        same_content(mine, other[key]) for key, mine in one.items()
    )


def same_array(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether two numbers are known, of one type, and the same."""
    if one is None or other is None:
        return False
    return one.dtype == other.dtype and np.array_equal(one, other)
