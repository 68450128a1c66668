"""Names of ops and tensors."""

import pytest
from tensorflow.core.framework.node_def_pb2 import NodeDef

from graphs.names import InputName, data_inputs, op_of, parse_input, source_of, with_index


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b", InputName("a/b", 0)),
        ("a/b:2", InputName("a/b", 2)),
        ("^a/b", InputName("a/b", -1)),
        ("node:out:1", InputName("node", 1, "out")),
        ("node:out", InputName("node", 0, "out")),
    ],
)
def test_every_form_is_taken_apart(name, expected):
    assert parse_input(name) == expected


@pytest.mark.parametrize("name", ["", "^", ":0", "a:", "a:out:x", "^a:0", "a:out:"])
def test_other_forms_are_errors(name):
    with pytest.raises(ValueError, match="reading input"):
        parse_input(name)


def test_the_tensor_of_an_input():
    assert parse_input("a").tensor == "a:0"
    assert parse_input("a/b:2").tensor == "a/b:2"


def test_op_of_and_with_index():
    assert [op_of(n) for n in ("a", "a:1", "^a", "a:out:0")] == ["a"] * 4
    assert [with_index(n) for n in ("a", "a:1")] == ["a:0", "a:1"]


def test_data_inputs_leave_control_edges_out():
    assert data_inputs(NodeDef(input=["a", "b:1", "^c"])) == ["a", "b:1"]


@pytest.mark.parametrize(
    ("tensor", "source"),
    [
        ("c:0", "v:1"),  # through c and b
        ("b", "v:1"),
        ("v:1", "v:1"),
        ("other:0", "other:0"),  # not of a type that passes on
        ("argument", "argument"),  # no node, but an argument of a function
        ("empty", "empty"),  # passes nothing on
    ],
)
def test_a_tensor_is_followed_to_its_source(tensor, source):
    nodes = [
        NodeDef(name="v", op="Split"),
        NodeDef(name="b", op="Identity", input=["v:1"]),
        NodeDef(name="c", op="Identity", input=["b:0", "^v"]),
        NodeDef(name="other", op="Neg", input=["c"]),
        NodeDef(name="empty", op="Identity"),
    ]
    assert source_of(tensor, {node.name: node for node in nodes}, {"Identity"}) == source


def test_following_a_circle_ends():
    nodes = {
        "a": NodeDef(name="a", op="Identity", input=["b"]),
        "b": NodeDef(name="b", op="Identity", input=["a"]),
    }
    assert source_of("a", nodes, {"Identity"}) in ("a", "b")
