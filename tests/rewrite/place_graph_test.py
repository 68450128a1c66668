"""Clearing, annotating, checking, and what must hold for every graph and placement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import graph_pb2

from graphs.errors import PlacementError
from graphs.flat_graph import Origin
from rewrite import emit_forms
from rewrite.call_graph import without_devices
from rewrite.compare_graphs import same_graphs
from rewrite.order.order_edges import add_marked, forget, marked
from rewrite.pass_base import PassResult, RewriteError, run_passes
from rewrite.place_graph import PlaceOps, check_rewrite, known_origins, place_graph
from tests.rewrite.graphs import add_call, add_function, add_op, shared_function
from tests.rewrite.placements import read_devices

GPU0, GPU1 = "/device:GPU:0", "/device:GPU:1"


def _with_devices() -> graph_pb2.GraphDef:
    graph_def = shared_function()
    graph_def.node[3].device = "/job:ps/task:3/device:CPU:0"
    graph_def.library.function[0].node_def[1].device = "/gpu:7"
    return graph_def


def test_without_devices_nothing_has_one():
    before = _with_devices()

    assert without_devices(before) == shared_function()
    assert before == _with_devices()


def test_a_graph_without_devices_stays_itself():
    before = shared_function()
    assert without_devices(before) is before


def test_placing_clears_what_is_not_wanted_and_keeps_what_is():
    before = _with_devices()

    result = run_passes(before, [PlaceOps({Origin("leaf", "neg"): "/gpu:7"})])

    assert result.changed_ops == ("out",)
    assert [node.device for node in result.graph_def.node] == [""] * len(before.node)
    assert result.graph_def.library.function[0].node_def[1].device == "/gpu:7"
    assert before == _with_devices()
    assert run_passes(before, [PlaceOps({})]) == PassResult(
        shared_function(), True, ("out", "leaf/neg")
    )


def test_placing_writes_where_the_calls_lead():
    wanted = {Origin("", "out"): GPU0, Origin("first", "inner", ("first",)): GPU1}

    result = run_passes(shared_function(), [PlaceOps(wanted)])

    assert result.changed_ops == ("out", "first/inner")
    assert read_devices(result.graph_def, wanted) == wanted
    assert not PlaceOps(wanted)(result.graph_def).modified


def test_placing_without_calls_means_every_copy_but_those_named_by_calls():
    in_first = Origin("leaf", "neg", ("first", "leaf"))
    in_second = Origin("leaf", "neg", ("second", "leaf"))
    split = place_graph(shared_function(), {in_first: GPU0, in_second: GPU1}).graph_def
    cleared = without_devices(split)

    result = PlaceOps({Origin("leaf", "neg"): GPU0, in_second: GPU1})(cleared)

    assert read_devices(result.graph_def, [in_first, in_second]) == {
        in_first: GPU0,
        in_second: GPU1,
    }


def test_placing_refuses_two_devices_for_one_op():
    wanted = {
        Origin("leaf", "neg", ("first", "leaf")): GPU0,
        Origin("leaf", "neg", ("second", "leaf")): GPU1,
    }
    with pytest.raises(PlacementError, match=r"'leaf/neg' is wanted on both .*specialise"):
        run_passes(shared_function(), [PlaceOps(wanted)])


def test_placing_refuses_an_unknown_op():
    with pytest.raises(PlacementError, match="op 'nowhere': the graph has no such op"):
        run_passes(shared_function(), [PlaceOps({Origin("", "nowhere"): GPU0})])


def test_known_origins_drop_calls_that_the_graph_does_not_make():
    through_main = Origin("leaf", "neg", ("first", "leaf"))
    by_method = Origin("leaf", "square", ("method", "leaf"))
    made = Origin("", "train_step/update")

    known = known_origins(shared_function(), {through_main: GPU0, by_method: GPU1, made: GPU1})

    assert known.device_of_origin == {through_main: GPU0, Origin("leaf", "square"): GPU1}
    assert known.unknown == (made,)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: g.node[3].input.reverse(), "'out': more than its device changed"),
        (lambda g: g.node.pop(), "4 ops became 3"),
        (
            lambda g: g.library.function[0].ret.update(y="square:y:0"),
            "function 'leaf': their ret differs",
        ),
        (lambda g: g.library.function.pop(), "one side only"),
        (lambda g: g.library.gradient.add(function_name="leaf"), "gradient functions differ"),
        (lambda g: setattr(g.versions, "producer", 1), "versions differ"),
        (
            lambda g: setattr(g.library.function[0].node_def[0], "op", "Neg"),
            "'leaf/square': more than",
        ),
    ],
)
def test_check_finds_damage(damage, message):
    damaged = shared_function()
    damage(damaged)
    with pytest.raises(RewriteError, match=message):
        same_graphs(shared_function(), damaged)


def test_check_finds_wrong_and_unasked_devices():
    wanted = {Origin("", "out"): "/job:ps/task:3/device:CPU:0"}
    with pytest.raises(
        RewriteError, match="'leaf/neg' has device '/gpu:7', wanted '/device:GPU:0'"
    ):
        wanted[Origin("leaf", "neg", ("first", "leaf"))] = GPU0
        check_rewrite(shared_function(), _with_devices(), wanted)
    with pytest.raises(RewriteError, match=r"'out' has device .* nobody asked for"):
        check_rewrite(shared_function(), _with_devices(), {Origin("leaf", "neg"): "/gpu:7"})


class _Breaks:
    def requires(self, graph_def):
        pass

    def __call__(self, graph_def):
        return PassResult(graph_def, False)

    def ensures(self, graph_def, result):
        raise RewriteError("promised something else")


def test_run_passes_stops_at_a_broken_promise():
    with pytest.raises(RewriteError, match="promised"):
        run_passes(shared_function(), [_Breaks()])


@st.composite
def _graphs_with_calls(draw):
    """Functions f0..fn, each calling later ones or looping over them; two wanted devices.

    Returns the graph and {Origin: device} over a drawn part of all (chain, op) pairs.
    """
    num_functions = draw(st.integers(1, 5))
    callees = {
        caller: draw(st.lists(st.integers(caller + 1, num_functions - 1), max_size=3))
        if caller < num_functions - 1
        else []
        for caller in range(-1, num_functions)
    }
    graph_def = graph_pb2.GraphDef()
    add_op(graph_def.node, "x", "Placeholder")
    for caller, called in callees.items():
        nodes = graph_def.node if caller < 0 else add_function(graph_def, f"f{caller}").node_def
        for op in range(draw(st.integers(1, 2))):
            add_op(nodes, f"op{op}", "Neg", ("x",), draw(st.sampled_from(["", "/gpu:3"])))
        for index, callee in enumerate(called):
            if draw(st.booleans()):
                add_call(nodes, f"call{index}", f"f{callee}", ("x",))
            else:
                loop = add_op(nodes, f"loop{index}", "StatelessWhile", ("x",))
                loop.attr["body"].func.name = loop.attr["cond"].func.name = f"f{callee}"
    wanted = {}
    bodies = {-1: graph_def.node}
    bodies.update(enumerate(f.node_def for f in graph_def.library.function))
    pending: list[tuple[tuple[str, ...], int]] = [((), -1)]
    while pending:
        chain, function = pending.pop()
        for node in bodies[function]:
            if node.op in ("Neg", "StatelessWhile"):
                device = draw(st.sampled_from([None, GPU0, GPU1]))
                if device is not None:
                    wanted[Origin(f"f{function}" if chain else "", node.name, chain)] = device
        opened = {n.attr["f"].func.name for n in bodies[function] if n.op == "PartitionedCall"}
        pending += [((*chain, name), int(name[1:])) for name in sorted(opened)]
    return graph_def, wanted


@settings(max_examples=150, deadline=None)
@given(_graphs_with_calls())
def test_any_placement_of_any_graph_reads_back_and_clears_away(drawn):
    graph_def, wanted = drawn
    before = graph_def.SerializeToString(deterministic=True)

    once = place_graph(graph_def, wanted)
    twice = place_graph(once.graph_def, wanted)

    assert read_devices(once.graph_def, wanted) == wanted
    assert not twice.modified
    assert twice.graph_def == once.graph_def
    assert graph_def.SerializeToString(deterministic=True) == before
    cleared = without_devices(graph_def)
    check_rewrite(cleared, without_devices(once.graph_def), {})
    assert emit_forms.cleared(once.graph_def) == cleared


@st.composite
def _graphs_of_ops(draw):
    """A graph without functions, placed and ordered already; wanted devices and edges."""
    graph_def = graph_pb2.GraphDef()
    names = [f"op{number}" for number in range(draw(st.integers(1, 6)))]
    edges = [(first, then) for at, then in enumerate(names) for first in names[:at]]
    chosen = st.lists(st.sampled_from(edges), unique=True) if edges else st.just([])
    own, before, order = draw(chosen), draw(chosen), draw(chosen)
    for name in names:
        node = add_op(graph_def.node, name, "NoOp", (), draw(st.sampled_from(["", GPU0, "/gpu:7"])))
        node.input.extend(f"^{first}" for first, then in own if then == name)
        for first in [first for first, then in before if then == name]:
            add_marked(node, first)
    devices = {name: draw(st.sampled_from([None, GPU0, GPU1])) for name in names}
    wanted = {Origin("", name): device for name, device in devices.items() if device}
    return graph_def, wanted, [(Origin("", first), Origin("", then)) for first, then in order]


@settings(max_examples=200, deadline=None)
@given(_graphs_of_ops())
def test_devices_and_order_are_the_wanted_ones_whatever_was_there(drawn):
    graph_def, wanted, order = drawn
    expected = graph_pb2.GraphDef()
    expected.CopyFrom(graph_def)
    for node in expected.node:
        node.device = wanted.get(Origin("", node.name), "")
        firsts = sorted(first.node for first, then in order if then.node == node.name)
        if set(marked(node)) != set(firsts):
            forget(node)
        for first in firsts:
            if f"^{first}" not in node.input:
                add_marked(node, first)
    given_bytes = graph_def.SerializeToString(deterministic=True)

    placed = run_passes(graph_def, [PlaceOps(wanted, order)])

    assert placed.graph_def == expected
    assert placed.modified or expected == graph_def
    assert graph_def.SerializeToString(deterministic=True) == given_bytes
    assert PlaceOps(wanted, order)(placed.graph_def).graph_def == expected


def test_what_is_in_no_graph_of_ops_is_refused():
    graph_def = graph_pb2.GraphDef()
    add_op(graph_def.node, "a", "NoOp")
    with pytest.raises(PlacementError, match="op 'b': the graph has no such op"):
        place_graph(graph_def, {Origin("", "b"): GPU0})
    with pytest.raises(PlacementError, match=r"op 'a' of function 'f'.* no such op"):
        place_graph(graph_def, {Origin("f", "a", ("f",)): GPU0})
    with pytest.raises(PlacementError, match="no body with both"):
        place_graph(graph_def, {}, [(Origin("", "a"), Origin("", "b"))])
    damaged = PassResult(graph_def, True)
    with pytest.raises(RewriteError, match="'a' has device '', wanted '/device:GPU:0'"):
        PlaceOps({Origin("", "a"): GPU0}).ensures(graph_def, damaged)
