"""Whether an op of a split step is the op that it stands for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphs.names import data_inputs
from rewrite.compare_graphs import same_content
from rewrite.pass_base import RewriteError
from rewrite.split.op_cases import bodies_of
from rewrite.split.op_view import Split, attributes_of_copies, type_of_copies
from rewrite.split.states import Sharded

_DERIVED = frozenset({"_output_shapes", "_class"})
_INT32 = 3


class Wanted(NamedTuple):
    """What an op of a split step has to be.

    Attributes:
      node: the op of the unsplit step that it stands for.
      answer: what was decided of that; None where it stays as it is.
      attributes: by their names, those of functions left out.
      of_functions: names of the attributes in which copies differ that run functions of their own.
      inputs: the tensors that the unsplit op reads.
      waits: the ops that it waits for.
      beside: the ops that it has to lie beside.
    """

    node: Any
    answer: Split | None
    attributes: Mapping[str, Any]
    of_functions: Collection[str]
    inputs: Sequence[str]
    waits: Sequence[str]
    beside: Sequence[str]


def wanted_of(node: Any, answer: Split | None) -> Wanted:
    """What an op has to become, whole or for each of many shards."""
    own = set() if answer is None else _of_functions(answer)
    attributes = _computing(attributes_of_copies(node, answer), own)
    waits = [name[1:] for name in node.input if name.startswith("^")]
    return Wanted(node, answer, attributes, own, data_inputs(node), waits, beside(node))


def require_same_op(here: Any, wanted: Wanted) -> None:
    """Raises RewriteError unless `here` is the op: type and attributes but for decided ones."""
    found = _computing(here.attr, wanted.of_functions)
    op = type_of_copies(wanted.node, wanted.answer)
    if here.op != op or not _same_attributes(found, wanted.attributes):
        raise RewriteError(f"reading {here.name!r} of the split step: it is another op")
    more = len(data_inputs(here)) - len(wanted.inputs)
    if more and (more != 1 or not wanted.of_functions):  # functions may read their shard's numbers
        raise RewriteError(f"reading {here.name!r} of the split step: it reads more or less")
    if wanted.of_functions:
        assert wanted.answer is not None
        _require_types(wanted.node, here, wanted.answer, more)


def beside(node: Any) -> list[str]:
    """The ops that a node has to lie beside."""
    wishes = node.attr["_class"].list.s if "_class" in node.attr else ()
    return [each.decode().removeprefix("loc:@") for each in wishes]


def _computing(attrs: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    return {key: attrs[key] for key in attrs if key not in _DERIVED and key not in without}


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
