"""Functions are copied where calls disagree, and only there."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import graph_pb2

from graphs.errors import ModelError, PlacementError
from graphs.flat_graph import Origin
from rewrite.place_graph import place_graph
from rewrite.specialize_functions import SpecializeFunctions
from tests.rewrite.graphs import add_call, add_function, add_op, shared_function
from tests.rewrite.placements import read_devices

GPU0, GPU1 = "/device:GPU:0", "/device:GPU:1"
SQUARE_IN_FIRST = Origin("leaf", "square", ("first", "leaf"))
SQUARE_IN_SECOND = Origin("leaf", "square", ("second", "leaf"))
NEG_IN_SECOND = Origin("leaf", "neg", ("second", "leaf"))


def _functions(graph_def: graph_pb2.GraphDef) -> list[str]:
    return [function.signature.name for function in graph_def.library.function]


def _function(graph_def: graph_pb2.GraphDef, name: str):
    return next(f for f in graph_def.library.function if f.signature.name == name)


def test_calls_that_disagree_get_a_body_each():
    given = shared_function()
    wanted = {SQUARE_IN_FIRST: GPU0, SQUARE_IN_SECOND: GPU1}

    placed = place_graph(given, wanted)

    assert given == shared_function()
    assert placed.modified
    assert _functions(placed.graph_def) == ["leaf", "first", "second", "leaf_placed_1"]
    first, second = _function(placed.graph_def, "first"), _function(placed.graph_def, "second")
    assert first.node_def[0].attr["f"].func.name == "leaf"
    assert second.node_def[0].attr["f"].func.name == "leaf_placed_1"
    assert read_devices(placed.graph_def, wanted) == wanted
    copy = _function(placed.graph_def, "leaf_placed_1")
    assert [(node.name, node.device) for node in copy.node_def] == [("square", GPU1), ("neg", "")]
    assert placed.changed_ops == (
        "leaf_placed_1/square",
        "leaf_placed_1/neg",
        "second/inner",
        "leaf/square",
    )


@pytest.mark.parametrize(
    "wanted",
    [{SQUARE_IN_FIRST: GPU0, SQUARE_IN_SECOND: GPU0}, {SQUARE_IN_FIRST: GPU0, NEG_IN_SECOND: GPU1}],
    ids=["same device", "nothing said by the other"],
)
def test_calls_that_agree_share_one_body(wanted):
    placed = place_graph(shared_function(), wanted)

    assert _functions(placed.graph_def) == ["leaf", "first", "second"]
    assert read_devices(placed.graph_def, wanted) == wanted


def test_second_run_changes_nothing():
    wanted = {SQUARE_IN_FIRST: GPU0, SQUARE_IN_SECOND: GPU1, Origin("", "out"): GPU1}
    once = place_graph(shared_function(), wanted)

    twice = place_graph(once.graph_def, wanted)

    assert not twice.modified
    assert twice.changed_ops == ()
    assert twice.graph_def == once.graph_def


def test_an_emitted_graph_can_be_placed_anew_by_the_names_it_has_now():
    once = place_graph(shared_function(), {SQUARE_IN_FIRST: GPU0, SQUARE_IN_SECOND: GPU1})
    wanted = {
        SQUARE_IN_FIRST: GPU1,
        Origin("leaf_placed_1", "neg", ("second", "leaf_placed_1")): GPU0,
    }

    again = place_graph(once.graph_def, wanted)

    assert read_devices(again.graph_def, wanted) == wanted
    assert read_devices(again.graph_def, [SQUARE_IN_SECOND]) == {SQUARE_IN_SECOND: ""}


def test_copies_of_callers_are_made_where_their_callees_differ():
    """main -> top -> middle -> leaf and main -> middle -> leaf."""
    graph_def = graph_pb2.GraphDef()
    add_op(graph_def.node, "x", "Placeholder")
    add_call(graph_def.node, "a", "top", ("x",))
    add_call(graph_def.node, "b", "middle", ("x",))
    for name, callee in (("top", "middle"), ("middle", "leaf")):
        add_call(add_function(graph_def, name).node_def, "inner", callee, ("x",))
    add_op(add_function(graph_def, "leaf").node_def, "neg", "Neg", ("x",))
    wanted = {
        Origin("leaf", "neg", ("top", "middle", "leaf")): GPU0,
        Origin("leaf", "neg", ("middle", "leaf")): GPU1,
    }

    placed = place_graph(graph_def, wanted).graph_def

    assert sorted(_functions(placed)) == [
        "leaf",
        "leaf_placed_1",
        "middle",
        "middle_placed_1",
        "top",
    ]
    assert read_devices(placed, wanted) == wanted


def test_calls_by_name_and_gradient_functions_follow():
    graph_def = shared_function()
    for function in graph_def.library.function[1:]:
        call = function.node_def[0]
        call.op = "leaf"
        call.attr.clear()
    add_function(graph_def, "leaf_grad")
    graph_def.library.gradient.add(function_name="leaf", gradient_func="leaf_grad")

    placed = place_graph(graph_def, {SQUARE_IN_FIRST: GPU0, SQUARE_IN_SECOND: GPU1}).graph_def

    assert _function(placed, "second").node_def[0].op == "leaf_placed_1"
    assert [(g.function_name, g.gradient_func) for g in placed.library.gradient] == [
        ("leaf", "leaf_grad"),
        ("leaf_placed_1", "leaf_grad"),
    ]


def test_the_body_of_a_placed_loop_gets_no_devices_of_other_calls():
    graph_def = shared_function()
    loop = graph_def.node.add(name="loop", op="While", input=["x"])
    loop.attr["cond"].func.name = "condition"
    loop.attr["body"].func.name = "leaf"
    add_function(graph_def, "condition")
    wanted = {SQUARE_IN_FIRST: GPU0, Origin("", "loop"): GPU1}

    placed = place_graph(graph_def, wanted)

    loop = next(node for node in placed.graph_def.node if node.name == "loop")
    assert (loop.device, loop.attr["cond"].func.name) == (GPU1, "condition")
    body = _function(placed.graph_def, loop.attr["body"].func.name)
    assert body.signature.name == "leaf_placed_1"
    assert [node.device for node in body.node_def] == ["", ""]
    assert read_devices(placed.graph_def, wanted) == wanted
    assert not place_graph(placed.graph_def, wanted).modified


def test_a_loop_whose_body_nobody_else_calls_needs_no_copy():
    graph_def = shared_function()
    loop = graph_def.node.add(name="loop", op="While", input=["x"])
    loop.attr["body"].func.name = "body"
    add_function(graph_def, "body")

    placed = place_graph(graph_def, {SQUARE_IN_FIRST: GPU0, Origin("", "loop"): GPU1})

    assert len(placed.graph_def.library.function) == len(graph_def.library.function)


def test_recursion_is_refused():
    recursive = Origin("leaf", "neg", ("first", "leaf", "first", "leaf"))
    with pytest.raises(ModelError, match=r"first > leaf > first > leaf come back"):
        SpecializeFunctions({recursive: GPU0}).requires(shared_function())


def test_recursion_inside_a_loop_body_that_needs_a_copy_is_refused():
    graph_def = shared_function()
    add_call(graph_def.library.function[0].node_def, "again", "leaf", ("x",))
    loop = graph_def.node.add(name="loop", op="While", input=["x"])
    loop.attr["body"].func.name = "leaf"
    with pytest.raises(ModelError, match="'leaf': it calls itself inside a loop"):
        place_graph(graph_def, {SQUARE_IN_FIRST: GPU0, Origin("", "loop"): GPU1})


def test_an_unknown_op_is_refused():
    message = "op 'nowhere' of function 'leaf', called through first > leaf: the graph has no such"
    with pytest.raises(PlacementError, match=message):
        place_graph(shared_function(), {Origin("leaf", "nowhere", ("first", "leaf")): GPU0})
