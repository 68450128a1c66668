"""Names of ops and tensors."""

import pytest

from graphs.names import InputName, op_of, parse_input, with_index


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
