"""TensorLists and Optionals: each shard has its own list, of the parts of the elements.

These rules are shown the list's state (Listed) and answer with it; what is written into a list is
noted in `elements`. A list of which nothing is cut stays one whole list. An Optional (Optioned) is
a list of one element at most, which is there from the start.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.list_elements import ListElements
from rewrite.split.rules.op_view import OpView
from rewrite.split.states import WHOLE, Listed, Optioned, Sharded, State

ListRule = Callable[[OpView, ListElements, str], Answer]

NEEDED_WHOLE = "its TensorList is needed whole"
OPTIONAL_NEEDED_WHOLE = "its Optional is needed whole"
_ACROSS = StayWhole("the batch is spread over the elements of a list")
_NEEDS_WHOLE = StayWhole("it needs a whole TensorList")
_IN_LISTS = StayWhole("lists in a list are not cut")
_OPTIONAL = StayWhole("it does more with an Optional than to hand it on")
_BY_BRANCH = StayWhole("what an Optional holds depends on a branch that was taken elsewhere")
_INDEX = StayWhole("the place in a list depends on the data that is cut")


def _new(view: OpView, elements: ListElements, root: str) -> Answer:
    """TensorListReserve, EmptyTensorList: input 0 is the shape of an element."""
    state = elements.root(root)
    if not isinstance(state, Listed):
        return StayWhole()
    return Split((WHOLE,) * len(view.inputs), (state,), _shapes(view, 0, state.element))


def _from_tensor(view: OpView, elements: ListElements, root: str) -> Answer:
    """TensorListFromTensor, TensorListScatter*: takes a tensor apart along axis 0."""
    given = view.inputs[0].state
    if isinstance(given, Sharded) and given.axis == 0:
        return _ACROSS
    if any(state != WHOLE for state in view.states[1:]):
        return _INDEX
    element = (
        dataclasses.replace(given, axis=given.axis - 1) if isinstance(given, Sharded) else None
    )
    state = elements.root(root, element or WHOLE)
    if not isinstance(state, Listed):
        return StayWhole(NEEDED_WHOLE) if given != WHOLE else StayWhole()
    needed = _stacked(state.element)
    shape_at = 1 if view.node.op == "TensorListFromTensor" else 2
    inputs = (needed, *(WHOLE,) * (len(view.inputs) - 1))
    return Split(inputs, (state,), _shapes(view, shape_at, state.element))


def _take(view: OpView, elements: ListElements, root: str) -> Answer:
    """TensorListGetItem, PopBack, Stack, Gather: the last input is the shape of an element."""
    listed = view.inputs[0].state
    if not isinstance(listed, Listed) or any(state != WHOLE for state in view.states[1:]):
        return _INDEX
    is_stacked = view.node.op in ("TensorListStack", "TensorListGather")
    taken = _stacked(listed.element) if is_stacked else listed.element or WHOLE
    outputs = (listed, taken) if view.node.op == "TensorListPopBack" else (taken,)
    return Split(view.states, outputs, _shapes(view, len(view.inputs) - 1, listed.element))


def _put(view: OpView, elements: ListElements, root: str) -> Answer:
    """TensorListSetItem, TensorListPushBack: the last input is the new element."""
    listed, item = view.inputs[0].state, view.inputs[-1].state
    if not isinstance(listed, Listed) or any(state != WHOLE for state in view.states[1:-1]):
        return _IN_LISTS if isinstance(item, Listed) else _INDEX
    written = elements.write(listed, item)
    cut: State = written.element or WHOLE
    inputs: tuple[State, ...] = (listed, *(WHOLE,) * (len(view.inputs) - 2), cut)
    return Split(inputs, (written,))


def _length(view: OpView, elements: ListElements, root: str) -> Answer:
    """TensorListLength: the same for each shard."""
    return Split(view.states, (WHOLE,))


def _resize(view: OpView, elements: ListElements, root: str) -> Answer:
    """TensorListResize: (list, size)."""
    return _INDEX if view.inputs[1].state != WHOLE else Split(view.states, (view.inputs[0].state,))


def _same(view: OpView, elements: ListElements, root: str) -> Answer:
    """Identity, ZerosLike, AddN ... of lists: all inputs are cut alike, and so is the output."""
    if any(isinstance(state, Optioned) for state in view.states):
        return Split(view.states, view.states) if view.node.op == "Identity" else _OPTIONAL
    joined: Listed | None = None
    for state in view.states:
        if not isinstance(state, Listed):
            return _NEEDS_WHOLE
        joined = state if joined is None else elements.join(joined, state)
    assert joined is not None
    return Split(view.states, (joined,))


def _each(view: OpView, elements: ListElements, root: str) -> Answer:
    """IdentityN: input i is output i."""
    if any(isinstance(state, Optioned) for state in view.states):
        return _OPTIONAL
    return Split(view.states, view.states)


def _from_value(view: OpView, elements: ListElements, root: str) -> Answer:
    """OptionalFromValue: takes what the Optional holds."""
    if all(state == WHOLE for state in view.states):
        return StayWhole()
    if len(view.states) > 1:
        return _OPTIONAL
    state = elements.optional(root, view.states[0])
    return StayWhole(OPTIONAL_NEEDED_WHOLE) if state == WHOLE else Split(view.states, (state,))


def _value(view: OpView, elements: ListElements, root: str) -> Answer:
    """OptionalGetValue: what the Optional holds, of a shape that its attribute says."""
    [given] = view.states
    if not isinstance(given, Optioned) or given.held is None or len(view.output_shapes) > 1:
        return _BY_BRANCH
    attr = copy.deepcopy(view.attr("output_shapes"))
    [shape] = attr.list.shape
    if isinstance(given.held, Sharded) and not shape.unknown_rank:
        shape.dim[given.held.axis].size = -1
    return Split((given,), (given.held,), attrs={"output_shapes": attr})


def _stacked(element: Sharded | None) -> State:
    """How a tensor is cut whose rows along a new first axis are elements."""
    return WHOLE if element is None else dataclasses.replace(element, axis=element.axis + 1)


def _shapes(
    view: OpView, position: int, element: Sharded | None
) -> Mapping[int, Mapping[int, Sharded]]:
    """What changes in an input that holds the shape of an element, where it says something."""
    value = view.inputs[position].value
    if element is None or (value is not None and value.ndim != 1):
        return {}
    return {position: {element.axis: element}}


LIST_SHAPE_OPS = frozenset({"TensorListElementShape"})
ROOTS: Mapping[str, ListRule] = {
    "TensorListReserve": _new,
    "EmptyTensorList": _new,
    "TensorListFromTensor": _from_tensor,
    "TensorListScatter": _from_tensor,
    "TensorListScatterV2": _from_tensor,
    "OptionalFromValue": _from_value,
}
LIST_RULES: Mapping[str, ListRule] = {
    "TensorListGetItem": _take,
    "TensorListPopBack": _take,
    "TensorListStack": _take,
    "TensorListGather": _take,
    "TensorListSetItem": _put,
    "TensorListPushBack": _put,
    "TensorListLength": _length,
    "OptionalGetValue": _value,
    "OptionalHasValue": _length,
    "TensorListResize": _resize,
    "IdentityN": _each,
    **dict.fromkeys(("Identity", "ZerosLike", "AddN", "Snapshot", "StopGradient"), _same),
}
