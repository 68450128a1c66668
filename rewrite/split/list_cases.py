"""TensorLists in the cases that prove ops: each is made of, and compared as, its rows.

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
from rewrite.split.states import WHOLE, Listed, State

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
