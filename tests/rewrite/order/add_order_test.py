"""Order edges are written into all bodies, kept apart from the model's own, and taken out again."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import graph_pb2

from graphs.errors import PlacementError
from graphs.flat_graph import Origin
from rewrite.order.order_edges import (
    add_order,
    check_order,
    forget_order,
    known_order,
    order_of,
    without_cycles,
    without_order,
)
from rewrite.pass_base import RewriteError, run_passes
from rewrite.place_graph import PlaceOps, check_rewrite, place_graph
from tests.rewrite.graphs import add_call, add_function, add_op, shared_function

GPU0, GPU1 = "/device:GPU:0", "/device:GPU:1"
CHAIN = ("first", "leaf")


def two_chains():
    """The shared function's graph, with ops beside one another in the main graph and in `leaf`."""
    graph_def = shared_function()
    add_op(graph_def.node, "a", "Neg", ("x",))
    add_op(graph_def.node, "b", "Neg", ("x",))
    leaf = next(f for f in graph_def.library.function if f.signature.name == "leaf")
    add_op(leaf.node_def, "beside", "Square", ("x",))
    return graph_def


IN_MAIN = (Origin("", "b"), Origin("", "a"))
IN_LEAF = (Origin("leaf", "neg", CHAIN), Origin("leaf", "beside", CHAIN))


def ordered(graph_def, order):
    """The result of writing an order, and no device."""
    return run_passes(graph_def, [PlaceOps({}, order)])


def test_edges_are_added_in_main_graph_and_body():
    before = two_chains()

    result = ordered(before, [IN_MAIN, IN_LEAF])

    assert result.changed_ops == ("a", "leaf/beside")
    assert order_of(result.graph_def) == [("", "a", "b"), ("leaf", "beside", "neg")]
    assert list(result.graph_def.node[-2].input) == ["x", "^b"]
    assert before == two_chains()
    assert not ordered(result.graph_def, [IN_MAIN, IN_LEAF]).modified
    add_order(before, [IN_MAIN, IN_LEAF])
    assert before == result.graph_def


def test_a_cleared_order_leaves_nothing():
    with_order = ordered(two_chains(), [IN_MAIN, IN_LEAF]).graph_def

    result = ordered(with_order, [])

    assert result.graph_def == two_chains()
    assert result.changed_ops == ("a", "leaf/beside")
    assert not ordered(result.graph_def, []).modified
    assert without_order(with_order) == two_chains()
    assert without_order(result.graph_def) is result.graph_def


def test_another_order_keeps_what_both_have():
    with_order = ordered(two_chains(), [IN_MAIN, IN_LEAF]).graph_def
    assert ordered(with_order, [IN_MAIN]).changed_ops == ("leaf/beside",)


def test_an_edge_that_the_model_has_itself_stays_its_own():
    graph_def = two_chains()
    graph_def.node[-2].input.append("^b")
    result = ordered(graph_def, [IN_MAIN])
    assert not result.modified
    assert order_of(result.graph_def) == []
    add_order(graph_def, [IN_MAIN])
    assert order_of(graph_def) == []


def test_a_copy_of_a_function_that_had_an_order_has_its_own_one():
    second = Origin("leaf", "neg", ("second", "leaf"))
    with_order = ordered(two_chains(), [IN_LEAF]).graph_def
    placed = place_graph(with_order, {IN_LEAF[0]: GPU0, IN_LEAF[1]: GPU0, second: GPU1}, [IN_LEAF])
    assert [edge[1:] for edge in order_of(placed.graph_def)] == [("beside", "neg")]


def test_placing_with_an_order_twice_changes_nothing_and_with_another_leaves_only_that():
    devices = {origin: GPU0 for edge in (IN_MAIN, IN_LEAF) for origin in edge}
    placed = place_graph(two_chains(), devices, [IN_MAIN, IN_LEAF]).graph_def
    assert not place_graph(placed, devices, [IN_MAIN, IN_LEAF]).modified
    again = place_graph(placed, devices, [tuple(reversed(IN_MAIN))]).graph_def
    assert order_of(again) == [("", "b", "a")]
    assert place_graph(placed, {}).graph_def == place_graph(two_chains(), {}).graph_def


def test_only_the_copy_that_a_chain_leads_to_is_ordered():
    second = ("second", "leaf")
    devices = {IN_LEAF[0]: GPU0, IN_LEAF[1]: GPU0, Origin("leaf", "neg", second): GPU1}
    placed = place_graph(two_chains(), devices, [IN_LEAF]).graph_def
    assert len([f for f in placed.library.function if f.signature.name.startswith("leaf")]) == 2
    assert len(order_of(placed)) == 1


def test_ops_of_two_bodies_are_refused():
    edge = (IN_MAIN[0], IN_LEAF[1])
    assert known_order(two_chains(), [edge, IN_MAIN]) == [IN_MAIN]
    with pytest.raises(PlacementError, match="no body with both"):
        ordered(two_chains(), [edge])


def test_edges_between_devices_circles_and_strangers_are_defects():
    devices = {IN_MAIN[0]: GPU0, IN_MAIN[1]: GPU1}
    with pytest.raises(RewriteError, match="both on one device"):
        place_graph(two_chains(), devices, [IN_MAIN])
    with pytest.raises(RewriteError, match="in a circle"):
        place_graph(two_chains(), {}, [IN_MAIN, tuple(reversed(IN_MAIN))])
    placed = place_graph(two_chains(), {}, [IN_MAIN]).graph_def
    check_order(placed, [IN_MAIN])
    with pytest.raises(RewriteError, match="nobody asked for"):
        check_rewrite(two_chains(), placed, {})
    with pytest.raises(RewriteError, match="does not wait for 'a'"):
        check_order(placed, [IN_MAIN, tuple(reversed(IN_MAIN))])
    placed.node[-2].input.append("^x")
    with pytest.raises(RewriteError, match="more than its device"):
        check_rewrite(two_chains(), placed, {}, [IN_MAIN])


def test_a_mark_without_its_edge_is_a_defect():
    placed = place_graph(two_chains(), {}, [IN_MAIN]).graph_def
    del placed.node[-2].input[1:]
    with pytest.raises(RewriteError, match="is marked to wait for 'b' and does not"):
        forget_order(placed)


def test_a_circle_through_a_call_is_left_out():
    """In the opened graph b may go before a; the call hands on what both need only at its end."""
    graph_def = two_chains()
    function = add_function(graph_def, "both")
    add_op(function.node_def, "n", "Neg", ("x",))
    function.ret["y"] = "n:y:0"
    add_call(graph_def.node, "call", "both", ("a",))
    add_op(graph_def.node, "c", "Neg", ("call",))
    circle = (Origin("", "c"), Origin("", "a"))
    assert without_cycles(graph_def, [IN_MAIN, circle, IN_LEAF]) == [IN_MAIN, IN_LEAF]


def test_an_edge_through_what_onednn_joins_to_one_op_closes_a_circle():
    """Joined are gradients of a filter and a bias; a convolution, its padding and its bias."""
    graph_def = graph_pb2.GraphDef()
    for name in ("image", "filters", "bias", "gradient", "sizes"):
        add_op(graph_def.node, name, "Placeholder")
    add_op(graph_def.node, "padded", "Pad", ("image", "sizes"))
    add_op(graph_def.node, "conv", "Conv2D", ("padded", "filters"))
    add_op(graph_def.node, "negative", "Neg", ("bias",))
    add_op(graph_def.node, "sum", "BiasAdd", ("conv", "negative"))
    add_op(graph_def.node, "same", "Identity", ("gradient",))
    add_op(graph_def.node, "of_filters", "Conv2DBackpropFilter", ("image", "sizes", "gradient"))
    add_op(graph_def.node, "of_bias", "BiasAddGrad", ("same",))
    add_op(graph_def.node, "beside", "Square", ("of_bias",))
    add_op(graph_def.node, "lacks_inputs", "BiasAddGrad")
    add_op(graph_def.node, "round", "Identity", ("round",))
    add_op(graph_def.node, "of_a_circle", "BiasAddGrad", ("round",))

    def edge(first, then):
        return Origin("", first), Origin("", then)

    closing = [edge("beside", "of_filters"), edge("conv", "negative"), edge("padded", "negative")]
    harmless = [edge("of_filters", "beside"), edge("of_filters", "of_bias"), edge("sum", "same")]
    assert [without_cycles(graph_def, [each]) for each in closing] == [[], [], []]
    assert without_cycles(graph_def, harmless) == harmless
