"""Look-ups in a GraphDef."""

import pytest
import tensorflow as tf

from graphs.errors import FetchError, ModelError
from graphs.graph_view import GraphView
from graphs.loading.load import require_sound

v1 = tf.compat.v1


def _graph(*nodes):
    """A GraphDef of (name, op, inputs)."""
    graph_def = v1.GraphDef()
    for name, op, *inputs in nodes:
        graph_def.node.add(name=name, op=op, input=inputs)
    return graph_def


LADDER = _graph(
    ("v", "VarHandleOp"),
    ("same", "Identity", "v"),
    ("read", "ReadVariableOp", "same"),
    ("x", "Placeholder"),
    ("y", "MatMul", "x", "read"),
    ("log", "Print", "y", "^x"),
    ("out", "Identity", "y", "^log"),
)


def test_ancestors_end_at_what_is_fed():
    view = GraphView(LADDER)
    assert set(view.ancestors(["out:0"])) == {"out", "log", "y", "x", "read", "same", "v"}
    assert set(view.ancestors(["out"], fed={"y"})) == {"out", "log", "y", "x"}
    with pytest.raises(FetchError, match=r"the graph has no op 'outt'; nearest: 'out'"):
        view.ancestors(["outt"])


def test_descendants_and_users():
    view = GraphView(LADDER)
    assert view.descendants(["read"]) == {"read", "y", "log", "out"}
    assert list(view.users["x"]) == ["y", "log"]


def test_a_variable_is_found_through_identities():
    view = GraphView(LADDER)
    assert [view.variable_of(t) for t in ("v", "same:0", "read", "x")] == ["v", "v", "", ""]


def test_a_circle_of_identities_is_no_variable():
    """Following such a circle must end."""
    view = GraphView(_graph(("a", "Identity", "b"), ("b", "Identity", "a")))
    assert view.variable_of("a") == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone:0", "the graph has no op 'gone'"),
        ("y:first", "wanted OP or OP:OUTPUT with a number, such as 'y:0'"),
        ("y:1", r"'y' \(MatMul\) has 1 output$"),
    ],
)
def test_tensors_that_are_not_there(name, message):
    with pytest.raises(FetchError, match=message):
        GraphView(LADDER).check_tensor(name, "fetch")


def test_damaged_graphs():
    with pytest.raises(ModelError, match="'a' uses 'b', which is not defined"):
        GraphView(_graph(("a", "Neg", "b")))
    with pytest.raises(ModelError, match="two ops have the same name"):
        GraphView(_graph(("a", "NoOp"), ("a", "NoOp")))


def _node(op, **attributes):
    graph_def = _graph(("n", op))
    for name, value in attributes.items():
        graph_def.node[0].attr[name].CopyFrom(value)
    return graph_def


def _shape(*sizes):
    value = v1.AttrValue()
    for size in sizes:
        value.shape.dim.add(size=size)
    return value


def _function(name):
    value = v1.AttrValue()
    value.func.name = name
    return value


def _constant(dtype, num_bytes, *sizes):
    value = v1.AttrValue()
    value.tensor.dtype = dtype
    value.tensor.tensor_shape.CopyFrom(_shape(*sizes).shape)
    value.tensor.tensor_content = bytes(num_bytes)
    return value


@pytest.mark.parametrize(
    ("graph_def", "message"),
    [
        (_node("Placeholder", shape=_shape(2, -1)), ""),
        (_node("Placeholder", shape=_shape(2, -2)), r"the shape \[2, -2\]; sizes are 0 or more"),
        (_node("Const", value=_constant(1, 8, 2)), ""),
        (_node("Const", value=_constant(1, 7, 2)), r"a value of 7 bytes for the shape \[2\] of 8"),
        (_node("Const", value=_constant(99, 8, 2)), "a value of the unknown type 99"),
        (_node("While", body=_function("gone")), "a call of 'gone', which is not defined"),
        (_node("RemoteCall", f=_function("gone")), "a call of 'gone', which is not defined"),
    ],
)
def test_damage_is_found(graph_def, message):
    in_function = v1.GraphDef()
    function = in_function.library.function.add()
    function.signature.name = "f"
    function.node_def.extend(graph_def.node)
    for damaged in (graph_def, in_function):
        if not message:
            require_sound(GraphView(damaged))
            continue
        with pytest.raises(ModelError, match=f"op 'n' has {message}"):
            require_sound(GraphView(damaged))
