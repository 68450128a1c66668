"""An order in an emitted SavedModel is proven, whatever else is there is found, and it runs."""

from __future__ import annotations

import os
import shutil

import pytest

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from graphs.op_types import ALIASES, NO_LAUNCH
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.model_builder import BuiltModel
from rewrite.order.order_edges import MARK, order_of, without_cycles
from rewrite.pass_base import RewriteError
from rewrite.place_graph import place_graph
from rewrite.prove_structure import prove_structure
from tests.rewrite.verify_test import _verify


def some_order(placed):
    """Each op of a body and a device before the next one that is listed."""
    last, edges = {}, []
    for node, origin in zip(placed.flat.graph_def.node, placed.flat.origins, strict=True):
        if origin.node and node.op not in ALIASES | NO_LAUNCH:
            where = (origin.function, origin.calls, placed.wanted[origin])
            if where in last:
                edges.append((last[where], origin))
            last[where] = origin
    return without_cycles(placed.source.graph_def, edges)


@pytest.fixture(scope="module")
def ordered(tf2, tmp_path_factory):
    """The order and the folder of a SavedModel that was emitted with it."""
    order = some_order(tf2)
    folder = tmp_path_factory.mktemp("ordered") / "out"
    emit(tf2.source, tf2.wanted, folder, {}, order=order)
    return order, folder


def test_it_is_there_and_proven(tf2, ordered):
    order, folder = ordered
    found = order_of(sniff(folder).proto.meta_graphs[0].graph_def)
    assert {bool(function) for function, _, _ in found} == {True}
    assert len(found) > 3
    prove_structure(tf2.source, folder, order=order)


def test_a_graph_is_emitted_with_it_and_proven(graph_def, tmp_path):
    """What was made of the graph before is the emitted model without its devices."""
    built = tmp_path / "built"
    extra = shutil.ignore_patterns(os.path.basename(EXTRA_DIRECTORY))
    shutil.copytree(graph_def.path, built, copy_function=os.link, ignore=extra)
    proto = sniff(built).proto
    cleared = place_graph(proto.meta_graphs[0].graph_def, {}).graph_def
    proto.meta_graphs[0].graph_def.CopyFrom(cleared)
    (built / "saved_model.pb").unlink()
    (built / "saved_model.pb").write_bytes(proto.SerializeToString())
    order, as_built = some_order(graph_def), proto.SerializeToString()
    made = BuiltModel(built, as_built)

    emit(graph_def.source, graph_def.wanted, tmp_path / "out", {}, made, order)

    assert len(order_of(sniff(tmp_path / "out").proto.meta_graphs[0].graph_def)) > 3
    assert len(order_of(sniff(tmp_path / "out" / EXTRA_DIRECTORY / "graph.pb").proto)) > 3
    prove_structure(graph_def.source, tmp_path / "out", as_built, order)
    with pytest.raises(RewriteError, match="nobody asked for"):
        prove_structure(graph_def.source, tmp_path / "out", as_built)


def test_an_unasked_and_an_unmarked_edge_are_found(tf2, ordered, tmp_path):
    order, folder = ordered
    shutil.copytree(folder, tmp_path / "changed", copy_function=os.link)
    path = tmp_path / "changed" / "saved_model.pb"
    emitted = sniff(folder).proto
    bodies = [f.node_def for f in emitted.meta_graphs[0].graph_def.library.function]
    node = next(n for nodes in bodies for n in nodes if MARK in n.attr)
    first = node.attr[MARK].list.s[0].decode()
    with pytest.raises(RewriteError, match=f"waits for '{first}', which nobody asked for"):
        prove_structure(tf2.source, folder, order=[e for e in order if e[0].node != first])
    del node.attr[MARK]
    path.unlink()
    path.write_bytes(emitted.SerializeToString())
    with pytest.raises(RewriteError, match="more than its device"):
        prove_structure(tf2.source, path.parent, order=order)


def test_it_computes_the_same(tf2, ordered):
    _, folder = ordered
    verified = _verify(tf2, str(folder))
    assert verified.outputs_equal
    assert verified.not_compared == verified.differing == ()


def test_a_model_with_an_order_is_placed_anew_without_it(tf2, ordered, tmp_path):
    _, folder = ordered
    again = load(str(folder), LoadOptions(mode=tf2.source.mode))
    emit(again, tf2.wanted, tmp_path / "again", {})
    assert order_of(sniff(tmp_path / "again").proto.meta_graphs[0].graph_def) == []
    prove_structure(tf2.source, tmp_path / "again")
    prove_structure(again, tmp_path / "again")
