"""TensorLists and Optionals in the cases that prove ops: made of, and compared as, what they hold.

`known` is all that is known of the tensors of a graph: `values`, `properties`, `elements`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from graphs.names import data_inputs, tensor_of
from rewrite.split.list_facts import Element
from rewrite.split.op_case import CaseInput, Shape
from rewrite.split.op_view import Split
from rewrite.split.states import WHOLE, Listed, Optioned, Partial, Sharded, State, Whole

_FLOAT, _VARIANT = 1, 21  # tensorflow.DataType
_LENGTH = 4
"""The size that is made up for a dimension that is not known before the run."""


def list_input(known: Any, node: Any, tensor: str, state: State, sizes: Sequence[int]) -> CaseInput:
    """A list that an op reads; of unknown shape where nothing says what its elements are."""
    import tensorflow as tf

    element = known.elements.get(tensor, Element())
    shape = element.shape
    if shape is None:
        shape = _element_shape(known, node, state, sizes)
    dtype = tf.as_dtype(node.attr["element_dtype"].type) if "element_dtype" in node.attr else None
    if shape is None or dtype == tf.variant:
        return CaseInput(None, "variant", state)
    name = "float32" if dtype is None else dtype.name
    rows = (_LENGTH if element.length is None else element.length, *shape)
    return CaseInput(rows, name, of_rows(state), is_list=True)


def lists_made(known: Any, node: Any, answer: Split, sizes: Sequence[int]) -> dict[int, Shape]:
    """{output of an op that is a list: the shape of an element}."""
    found = {}
    for index, dtype in enumerate(known.properties.dtype_of[node.name]):
        if dtype == "variant":
            shape = known.elements.get(f"{node.name}:{index}", Element()).shape
            if shape is None:
                shape = _element_shape(known, node, answer.outputs[index], sizes)
            found[index] = shape
    return found


def of_rows(state: State) -> State:
    """The state of a list's elements in one tensor; any other state as it is."""
    if not isinstance(state, Listed):
        return state
    element = state.element
    return WHOLE if element is None else dataclasses.replace(element, axis=element.axis + 1)


def is_of_optional(answer: Split) -> bool:
    """Whether an op makes or reads an Optional."""
    return any(isinstance(state, Optioned) for state in (*answer.inputs, *answer.outputs))


def optional_case(
    known: Any, node: Any, answer: Split, sizes: Sequence[int]
) -> tuple[CaseInput, State, Shape]:
    """What an op of an Optional reads; the state and the shape of what it makes.

    What an Optional holds goes in and comes out as it is, whatever it is. So where it is a list, or
    is not known, a vector of the batch stands for it.
    """
    is_new, [given], [made] = node.op == "OptionalFromValue", answer.inputs, answer.outputs
    held = given.held if isinstance(given, Optioned) else given
    tensor = {"OptionalFromValue": data_inputs(node)[0], "OptionalGetValue": node.name}.get(node.op)
    dtype = known.properties.dtype(tensor_of(tensor)) if tensor else "variant"
    shape = known.properties.shape(tensor_of(tensor)) if tensor else None
    if not isinstance(held, Partial | Sharded) and held != WHOLE:
        held = Sharded(0)
    assert isinstance(held, Partial | Sharded | Whole)
    if dtype == "variant":
        axis = held.axis if isinstance(held, Sharded) else 0
        size = held.size(sum(sizes)) if isinstance(held, Sharded) else _LENGTH
        dtype, shape = "float32", ((_LENGTH,) * axis) + (size,)
    is_value = isinstance(made, Optioned) or node.op == "OptionalGetValue"
    case = CaseInput(shape, dtype, held, is_optional=not is_new)
    return case, held if is_value else WHOLE, shape if is_value else ()


def with_vectors(node: Any) -> Any:
    """An op of an Optional that holds what `optional_case` says; in place.

    Its copies don't say how large their part is, which the op may say of the whole.
    """
    for name in ("Toutput_types", "output_types"):
        if name in node.attr:
            types = node.attr[name].list.type
            types[:] = [_FLOAT if each == _VARIANT else each for each in types]
    if "output_shapes" in node.attr:
        for shape in node.attr["output_shapes"].list.shape:
            shape.Clear()
            shape.unknown_rank = True
    return node


def _element_shape(known: Any, node: Any, state: State, sizes: Sequence[int]) -> Shape:
    """The shape of a list's elements where an op says it; what it leaves open is made up."""
    inputs = [tensor_of(name) for name in data_inputs(node)]
    if node.op in ("TensorListSetItem", "TensorListPushBack"):
        return known.properties.shape(inputs[-1])
    said = None
    if node.op in ("TensorListReserve", "EmptyTensorList"):
        said = known.values.value(inputs[0])
    if said is None or not isinstance(state, Listed):
        return None
    cut = state.element
    rank = len(said) if said.ndim else 1 + (cut.axis if cut else 0)
    shape = tuple(said.tolist()) if said.ndim else (-1,) * rank
    size = cut.size(sum(sizes)) if cut else _LENGTH
    return tuple(
        (size if cut and axis == cut.axis else _LENGTH) if each < 0 else each
        for axis, each in enumerate(shape)
    )
