"""Which functions nodes call, name and reach."""

import pytest
import tensorflow as tf

from graphs.errors import ModelError
from graphs.function_library import (
    MAX_CALL_DEPTH,
    called_function,
    callees,
    kept_whole,
    library_of,
    named_functions,
    reached_functions,
    referred_functions,
    require_bounded,
)

NodeDef = tf.compat.v1.NodeDef


def _call(name, op="PartitionedCall", **functions):
    node = NodeDef(name=name, op=op)
    for attribute, function in functions.items():
        if isinstance(function, list):
            for each in function:
                node.attr[attribute].list.func.add(name=each)
        else:
            node.attr[attribute].func.name = function
    return node


def _graph(**bodies):
    """A GraphDef with a function for each keyword, whose body is the list of nodes."""
    graph_def = tf.compat.v1.GraphDef()
    for name, nodes in bodies.items():
        function = graph_def.library.function.add()
        function.signature.name = name
        function.node_def.extend(nodes)
    return graph_def


LIBRARY = library_of(
    _graph(
        a=[_call("to_b", f="b"), _call("loop", "While", body="c", cond="d")],
        b=[_call("by_name", "c")],
        c=[],
        d=[_call("back", f="a")],
        alone=[],
    )
)


def test_what_a_node_calls():
    assert called_function(_call("n", f="b"), LIBRARY) == "b"
    assert called_function(_call("n", "RemoteCall", f="b"), LIBRARY) == "b"
    assert called_function(_call("n", "b"), LIBRARY) == "b"
    assert called_function(_call("n", f="gone"), LIBRARY) is None
    assert called_function(_call("n", "While", body="b"), LIBRARY) is None
    assert called_function(_call("n", "MatMul"), LIBRARY) is None


def test_what_a_node_names_also_if_it_is_not_defined():
    case = _call("n", "Case", branches=["b", "gone", "c"])
    assert list(named_functions(case)) == ["b", "gone", "c"]
    assert list(referred_functions([case, _call("m", "d")], LIBRARY)) == ["b", "c", "d"]


def test_arguments_begin_behind_a_conditionals_condition():
    assert callees(_call("n", "If", then_branch="b", else_branch="c"), LIBRARY) == [
        ("c", 1),
        ("b", 1),
    ]
    assert callees(_call("n", f="b"), LIBRARY) == [("b", 0)]


def test_what_is_reached_is_reached_once_also_around_a_circle():
    reached = reached_functions([_call("n", f="a")], LIBRARY)
    assert sorted(reached) == ["a", "b", "c", "d"]
    assert reached_functions([_call("n", f="c")], LIBRARY) == ["c"]
    assert reached_functions([_call("n", "NoOp")], LIBRARY) == []


def test_calls_that_tensorflow_never_opens():
    node, function = _call("n", f="a"), LIBRARY["a"]
    assert kept_whole(node, function) == ""
    node.attr["_noinline"].b = False
    assert kept_whole(node, function) == ""
    node.attr["_noinline"].b = True
    assert kept_whole(node, function) == "a function that says _noinline"
    assert "_XlaMustCompile" not in node.attr  # looking must not add attributes


def _nested(number, calls):
    bodies = {"f0": [NodeDef(name="x", op="NoOp")]}
    for i in range(number):
        bodies[f"f{i + 1}"] = [_call(f"c{n}", f=f"f{i}") for n in range(calls)]
    return bodies


@pytest.mark.parametrize(
    ("number", "calls", "is_bounded"),
    [(10, 2, True), (40, 2, False), (MAX_CALL_DEPTH - 2, 1, True), (3000, 1, False)],
)
def test_calls_that_would_never_end_are_counted_before_they_are_opened(number, calls, is_bounded):
    main = [_call("main", f=f"f{number}")]
    library = library_of(_graph(**_nested(number, calls)))
    if is_bounded:
        require_bounded(main, library)
    else:
        with pytest.raises(ModelError, match=r"its calls hold .* ops and nest"):
            require_bounded(main, library)


def test_a_recursion_is_no_matter_of_size():
    require_bounded([_call("main", f="f")], library_of(_graph(f=[_call("again", f="f")])))
