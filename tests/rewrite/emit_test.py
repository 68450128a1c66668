"""SavedModels that are written: whole, with exactly the devices that were asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

from graphs.errors import ModelError, OutputError, PlacementError
from graphs.flat_graph import Origin
from graphs.function_library import bodies
from graphs.host.asked_child import ChildError, ask_child
from graphs.loading.load import load
from graphs.loading.sniff import sniff
from rewrite import emit as emit_module
from rewrite.call_graph import copy_of
from rewrite.compare_graphs import same_graphs
from rewrite.emit import emit, in_model
from rewrite.model_builder import given_graph
from rewrite.place_graph import known_origins, place_graph
from tests.rewrite.placements import CPU0, CPU1, read_devices


def _meta_graph(directory: str):
    return sniff(directory).proto.meta_graphs[0]


def _files(directory: str) -> set[str]:
    return {
        os.path.relpath(Path(folder, name), directory)
        for folder, _, names in os.walk(directory)
        for name in names
    }


def test_tf2_model_is_kept_and_placed(tf2):
    given, placed = _meta_graph(tf2.source.path), _meta_graph(tf2.path)

    assert read_devices(placed.graph_def, tf2.wanted) == tf2.wanted
    same_graphs(given.graph_def, placed.graph_def)
    assert _files(tf2.path) == {*_files(tf2.source.path), "assets.extra/tfplace/report.json"}
    assert placed.signature_def == given.signature_def
    assert placed.saver_def == given.saver_def
    assert tf2.ignored == ()
    given_functions = {f.signature.name for f in given.graph_def.library.function}
    copies = {
        f.signature.name: copy_of(f)
        for f in placed.graph_def.library.function
        if f.signature.name not in given_functions
    }
    assert len(copies) >= 1
    assert sorted(copies) == [f"{name}_placed_1" for name in sorted(copies.values())]


def test_equally_named_variables_get_the_devices_of_their_own_handles(tf2):
    """Both are called "w": only what calls capture tells them apart."""
    placed = _meta_graph(tf2.path)
    objects = placed.object_graph_def.nodes
    device = {c.local_name: objects[c.node_id].variable.device for c in objects[0].children}
    handles = {n.name: n.device for n in placed.graph_def.node if n.op == "VarHandleOp"}
    assert sorted((handles["w"], handles["w_1"])) == [CPU0, CPU1]
    assert sorted((device["first"], device["second"])) == [CPU0, CPU1]

    request = {"path": tf2.path, "signature": "train_step", "feeds": {"x": [[1.0, 2.0]]}}
    variables, ran = ask_child("tests.rewrite.loaded_devices", request, 120)

    assert variables == {name: device[name].removeprefix("/") for name in ("first", "second")}
    assert {op: d for op, d in ran.items() if op in handles} == {
        op: d.removeprefix("/") for op, d in handles.items() if op != "unused"
    }
    ran = {op: d for op, d in ran.items() if op.endswith(("/Tanh", "/MatMul"))}
    tanh = {op: d for op, d in ran.items() if op.endswith("/Tanh")}
    assert sorted(tanh.values()) == ["device:CPU:0", "device:CPU:1"]
    assert {d for op, d in ran.items() if op not in tanh} == {"device:CPU:1"}


def test_the_fingerprint_is_of_the_new_graph(tf2):
    import tensorflow as tf

    given = tf.saved_model.experimental.read_fingerprint(tf2.source.path)
    placed = tf.saved_model.experimental.read_fingerprint(tf2.path)
    assert placed.saved_model_checksum != given.saved_model_checksum
    assert placed.checkpoint_hash == given.checkpoint_hash


def test_emitting_twice_is_the_same_to_the_byte(tf2, tmp_path):
    emit(tf2.source, tf2.wanted, tmp_path, {})
    first, second = (Path(p, "saved_model.pb") for p in (tf2.path, tmp_path))
    assert first.read_bytes() == second.read_bytes()


def test_placing_the_emitted_model_on_nothing_clears_it(tf2, tmp_path):
    emit(load(tf2.path), {}, tmp_path, {})
    meta_graph = _meta_graph(tmp_path)
    assert not any(n.device for _, nodes in bodies(meta_graph.graph_def) for n in nodes)
    assert not any(o.variable.device for o in meta_graph.object_graph_def.nodes)
    assert _files(tmp_path) == _files(tf2.source.path)


def test_a_made_training_step_is_left_out(keras_layers):
    ignored = keras_layers.ignored
    assert keras_layers.source.origins is not None
    assert ignored and all(origin.node.startswith("train_step/") for origin in ignored)
    given = _meta_graph(keras_layers.source.path)
    placed = _meta_graph(keras_layers.path)
    same_graphs(given.graph_def, placed.graph_def)
    kept = in_model(keras_layers.source, keras_layers.wanted)
    kept = {o: d for o, d in kept.items() if o not in ignored}
    assert any(o.function for o in kept)
    assert read_devices(placed.graph_def, kept) == kept


def test_tf1_model_keeps_its_assets(tf1):
    assert Path(tf1.path, "assets", "vocabulary.txt").read_text() == "red\ngreen\nblue\n"
    assert read_devices(_meta_graph(tf1.path).graph_def, tf1.wanted) == tf1.wanted
    assert "fingerprint.pb" not in _files(tf1.path)


def test_a_text_model_with_several_meta_graphs_is_placed_in_all(tf1, tmp_path):
    saved_model = sniff(tf1.source.path).proto
    second = saved_model.meta_graphs.add()
    second.CopyFrom(saved_model.meta_graphs[0])
    second.meta_info_def.tags.append("train")
    text = tmp_path / "text"
    text.mkdir()
    (text / "saved_model.pbtxt").write_text(text_format.MessageToString(saved_model))
    for name in ("variables", "assets"):
        (text / name).symlink_to(Path(tf1.source.path, name))
    source = load(str(text))

    emit(source, tf1.wanted, tmp_path / "out", {})

    assert "saved_model.pbtxt" not in _files(tmp_path / "out")
    content = (tmp_path / "out" / "saved_model.pb").read_bytes()
    placed = saved_model_pb2.SavedModel.FromString(content)
    assert len(placed.meta_graphs) == 2
    for meta_graph in placed.meta_graphs:
        assert read_devices(meta_graph.graph_def, tf1.wanted) == tf1.wanted


def test_a_graph_def_becomes_a_model_with_a_training_signature(graph_def):
    written = sniff(Path(graph_def.path, "assets.extra/tfplace/graph.pb")).proto
    same_graphs(sniff(graph_def.source.path).proto, written)
    assert read_devices(written, graph_def.wanted) == graph_def.wanted
    meta_graph = _meta_graph(graph_def.path)
    assert read_devices(meta_graph.graph_def, graph_def.wanted) == graph_def.wanted
    assert {n.name for n in written.node} < {n.name for n in meta_graph.graph_def.node}
    assert not [n.name for n in meta_graph.graph_def.node if n.name.startswith("tfplace_assign")]
    signature = meta_graph.signature_def["train_step"]
    assert sorted(signature.inputs) == ["target", "x"]
    assert sorted(signature.outputs) == ["loss"]


def test_a_meta_graph_keeps_its_signatures_and_restores_its_checkpoint(meta_graph):
    import tensorflow as tf

    placed = _meta_graph(meta_graph.path)
    assert sorted(placed.signature_def) == ["score", "train_step"]
    assert sorted(placed.signature_def["train_step"].outputs) == ["loss"]
    prefix = meta_graph.source.path.removesuffix(".meta")
    given = tf.train.load_checkpoint(prefix)
    written = tf.train.load_checkpoint(os.path.join(meta_graph.path, "variables/variables"))
    for name in ("w", "b"):
        assert written.get_tensor(name).tobytes() == given.get_tensor(name).tobytes()


def test_a_placement_of_another_model_is_refused(tf2, tmp_path):
    with pytest.raises(PlacementError, match="none of the 1 placed ops is in the model"):
        emit(tf2.source, {Origin("", "nowhere"): CPU0}, tmp_path, {})


def test_the_graph_file_is_what_placing_the_given_graph_makes(graph_def):
    given = given_graph(graph_def.source)
    placed = place_graph(given, known_origins(given, graph_def.wanted).device_of_origin)
    written = Path(graph_def.path, "assets.extra/tfplace/graph.pb").read_bytes()
    assert not given.library.function
    assert written == placed.graph_def.SerializeToString(deterministic=True)


def test_a_graph_whose_variables_cannot_be_initialised_is_refused(graph_def, tmp_path, monkeypatch):
    def crashing(child, timeout_seconds):
        raise ChildError("it was killed by SIGSEGV: it said nothing")

    monkeypatch.setattr("rewrite.model_builder.AskedChild.answer", crashing)
    with pytest.raises(ModelError, match=r"it was killed by SIGSEGV.* check that the graph's own"):
        emit(graph_def.source, graph_def.wanted, tmp_path, {})


def test_what_the_disk_did_not_keep_is_found_out(tf2, tmp_path, monkeypatch):
    """The written file is not the one that is read back: its last byte is another one."""
    write = Path.write_bytes

    def badly(path, content):
        damaged = content[:-1] + bytes([content[-1] ^ 1])
        return write(path, damaged if path.name == "saved_model.pb" else content)

    monkeypatch.setattr(Path, "write_bytes", badly)
    with pytest.raises(OutputError, match="it is not what was written; check the disk"):
        emit(tf2.source, tf2.wanted, tmp_path, {})


def test_a_graph_of_more_than_2_gib_is_refused():
    class Big:
        def ByteSize(self):
            return 2**31

    with pytest.raises(ModelError, match=r"writing x: its graph takes 2147483648 bytes.*; do y"):
        emit_module.serialized(Big(), "writing x", "do y")
