"""What is known of a tensor that a function is given or returns, and an op that stands for it."""

import dataclasses

import numpy as np

import graphs.late_tensorflow as tf
from graphs.protos import GraphDef, NodeDef, Shape, placeholder

NOTHING: Shape = (-2,)
"""The shape of a list's elements where nothing was put into it yet."""

HOLDS = "_tfplace_holds"
"""What says `Held.exact` of an op that stands for a list."""


@dataclasses.dataclass(frozen=True)
class Held:
    """What a TensorList holds.

    Attributes:
      length: -1 where it isn't known.
      element: shape of all that was put into it, or `NOTHING`.
      declared: shape that the list was made for.
      dtype: number of the elements' DataType.
      exact: serialized NodeDef of a constant, where nothing else was put into it.
    """

    length: int
    element: Shape
    declared: Shape
    dtype: int
    exact: bytes = b""


@dataclasses.dataclass(frozen=True)
class Known:
    """A tensor, before the run.

    Attributes:
      dtype: name.
      shape: as far as it is known.
      exact: serialized NodeDef, without a name, of a constant or a variable's handle that it is.
      held: where it is a TensorList of known type.
    """

    dtype: str
    shape: Shape
    exact: bytes = b""
    held: Held | None = None


def without_value(known: Known) -> Known:
    """A tensor that may have another value each time; a handle stays that of its variable."""
    return known if known.dtype == "resource" else dataclasses.replace(known, exact=b"")


def joined_shapes(one: Shape, other: Shape) -> Shape:
    """What is true of a shape that is one or the other."""
    if NOTHING in (one, other):
        return other if one == NOTHING else one
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))


def narrowed(one: Shape, other: Shape) -> Shape:
    """What is true of a shape of which both are."""
    if one is None or other is None or len(one) != len(other):
        return other if one is None else one
    return tuple(b if a < 0 else a for a, b in zip(one, other, strict=True))


def joined_held(one: Held | None, other: Held | None) -> Held | None:
    """What is true of lists that are one or the other."""
    if one is None or other is None:
        return None
    return Held(
        one.length if one.length == other.length else -1,
        joined_shapes(one.element, other.element),
        joined_shapes(one.declared, other.declared),
        one.dtype,
        one.exact
        if other.element == NOTHING or one.exact == other.exact
        else other.exact
        if one.element == NOTHING
        else b"",
    )


def joined(one: Known, other: Known) -> Known:
    """What is true of a tensor that is one or the other."""
    return Known(
        one.dtype,
        joined_shapes(one.shape, other.shape),
        one.exact if one.exact == other.exact else b"",
        joined_held(one.held, other.held),
    )


def constant_node(name: str, value: np.ndarray, dtype: str | None = None) -> NodeDef:
    """A Const of this name."""
    tensor = tf.make_tensor_proto(value, dtype)
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tensor)
    node.attr["dtype"].type = tensor.dtype
    return node


def add_stand_in(graph_def: GraphDef, name: str, known: Known) -> None:
    """Adds an op of this name that makes a tensor of which as much is known."""
    held = known.held
    if known.exact:
        graph_def.node.add().ParseFromString(known.exact)
        graph_def.node[-1].name = name
    elif held is None:
        graph_def.node.append(placeholder(name, known.dtype, known.shape))
    else:
        element = held.declared if held.element == NOTHING else held.element
        sizes = {"shape": -1 if element is None else element, "size": held.length}
        for end, value in sizes.items():
            graph_def.node.append(constant_node(f"{name}_{end}", np.array(value, np.int32)))
        inputs = [f"{name}_{end}" for end in sizes]
        made = graph_def.node.add(name=name, op="TensorListReserve", input=inputs)
        made.attr["element_dtype"].type = held.dtype
        made.attr["shape_type"].type = graph_def.node[-2].attr["dtype"].type
        made.attr[HOLDS].s = held.exact
