"""Other forms of an emitted model: its GraphDef, and a copy without any device."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from graphs.flat_graph import Origin
from graphs.function_library import bodies
from graphs.loading.load import load
from graphs.loading.sniff import sniff
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.emit_forms import FORMS, cleared, tags_of, write_forms
from rewrite.place_graph import place_graph
from tests.rewrite import models
from tests.rewrite.graphs import shared_function

GPU0, GPU1 = "/device:GPU:0", "/device:GPU:1"


def _devices(graph_def):
    return [node.device for _, nodes in bodies(graph_def) for node in nodes if node.device]


@pytest.fixture(scope="module")
def placed_tf2(tmp_path_factory):
    """(given, placed) SavedModel directories; two functions on devices, all forms written."""
    folder = tmp_path_factory.mktemp("forms")
    given = models.write_tf2(folder / "given")
    source = load(given)
    library = sniff(given).proto.meta_graphs[0].graph_def.library.function
    wanted = {
        Origin(function.signature.name, node.name): (GPU0, GPU1)[index % 2]
        for index, function in enumerate(library)
        for node in function.node_def
        if node.op in ("MatMul", "Tanh")
    }
    main = sniff(given).proto.meta_graphs[0].graph_def.node
    wanted |= {Origin("", node.name): GPU1 for node in main if node.op == "VarHandleOp"}
    out = folder / "placed"
    emit(source, wanted, out, {})
    write_forms(out, tags_of(source), frozenset(FORMS))
    return given, out


def test_the_graph_file_is_the_placed_main_graph(placed_tf2):
    _, out = placed_tf2
    written = graph_pb2.GraphDef.FromString((out / EXTRA_DIRECTORY / "graph.pb").read_bytes())
    assert written == sniff(out).proto.meta_graphs[0].graph_def
    assert set(_devices(written)) == {GPU0, GPU1}


def test_the_cleared_copy_is_the_given_model_and_loads(placed_tf2):
    given, out = placed_tf2
    extra = out / EXTRA_DIRECTORY
    copy = sniff(extra / "cleared").proto.meta_graphs[0]
    before = sniff(given).proto.meta_graphs[0]
    assert _devices(copy.graph_def) == []
    assert copy.graph_def == cleared(before.graph_def)
    assert not any(n.variable.device for n in copy.object_graph_def.nodes)
    assert set(copy.signature_def) == set(before.signature_def)
    alone = graph_pb2.GraphDef.FromString((extra / "cleared.pb").read_bytes())
    assert alone == copy.graph_def
    x = tf.constant([[1.0, -2.0]])
    values = [
        tf.saved_model.load(str(path)).signatures["serving_default"](x=x)["y"].numpy()
        for path in (given, extra / "cleared")
    ]
    np.testing.assert_array_equal(*values)


def test_without_the_saved_model_only_its_extras_are_left(tmp_path):
    given = models.write_tf2(tmp_path / "given")
    out = tmp_path / "out"
    source = load(given)
    emit(source, {}, out, {"report.json": b"{}"})
    write_forms(out, tags_of(source), frozenset({"graph_def"}))
    assert os.listdir(out) == ["assets.extra"]
    assert sorted(os.listdir(out / EXTRA_DIRECTORY)) == ["graph.pb", "report.json"]


def test_clearing_takes_out_devices_and_copies():
    wanted = {
        Origin("leaf", "neg", ("first", "leaf")): GPU0,
        Origin("leaf", "neg", ("second", "leaf")): GPU1,
        Origin("", "out"): GPU1,
    }
    placed = place_graph(shared_function(), wanted).graph_def
    assert len(placed.library.function) > len(shared_function().library.function)
    assert cleared(placed) == shared_function()
