"""Kinds of model files, told from content; and everything that is none."""

import gzip
import os

import numpy as np
import pytest
from google.protobuf import text_format

from graphs.errors import ModelError
from graphs.loading.riegeli import LENGTH, SIGNATURE, VARINT, CutOffError, outermost_fields
from graphs.loading.sniff import new_message, sniff
from tests.graphs.loading.chunked_writer import varint
from tests.graphs.loading.model_files import zipped


def _graph(num_nodes=2):
    graph = new_message("graph_def")
    for i in range(num_nodes):
        graph.node.add(name=f"n{i}", op="NoOp")
    graph.versions.producer = 1087
    return graph


def _meta_graph():
    meta_graph = new_message("meta_graph_def")
    meta_graph.meta_info_def.tags.append("serve")
    meta_graph.meta_info_def.tensorflow_version = "2.21.0"
    meta_graph.graph_def.CopyFrom(_graph())
    return meta_graph


def _saved_model():
    saved_model = new_message("saved_model")
    saved_model.saved_model_schema_version = 1
    saved_model.meta_graphs.add().CopyFrom(_meta_graph())
    return saved_model


MESSAGES = {"graph_def": _graph, "meta_graph_def": _meta_graph, "saved_model": _saved_model}


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("text", [False, True])
def test_messages_under_a_name_that_says_nothing(tmp_path, kind, text):
    message = MESSAGES[kind]()
    path = tmp_path / "model"
    if text:
        path.write_text("# a comment\n" + text_format.MessageToString(message))
    else:
        path.write_bytes(message.SerializeToString())
    file = sniff(path)
    assert (file.kind, file.proto) == (kind, message)
    assert file.directory == (str(tmp_path) if kind == "saved_model" else "")


def test_the_smallest_messages(tmp_path):
    path = tmp_path / "model"
    for kind, message in [
        ("graph_def", new_message("graph_def")),
        ("meta_graph_def", new_message("meta_graph_def")),
    ]:
        (message if kind == "graph_def" else message.graph_def).node.add(name="a", op="NoOp")
        path.write_bytes(message.SerializeToString())
        assert sniff(path).kind == kind


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_saved_model_directory(tmp_path, name):
    message = _saved_model()
    if name.endswith("txt"):
        (tmp_path / name).write_text(text_format.MessageToString(message))
    else:
        (tmp_path / name).write_bytes(message.SerializeToString())
    file = sniff(tmp_path)
    assert (file.kind, file.path) == ("saved_model", str(tmp_path))
    assert file.directory == str(tmp_path)
    assert sniff(tmp_path / name).directory == str(tmp_path)


def test_keras(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(zipped(["config.json"]))
    assert sniff(path).kind == "keras_zip"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert sniff(path).kind == "keras_hdf5"


def _deep():
    """A GraphDef whose attribute is 200 functions deep."""
    graph = _graph()
    value = b""
    for _ in range(200):  # AttrValue.func.attr["a"] = the one before
        entry = b"\x0a\x01a\x12" + varint(len(value)) + value
        func = b"\x0a\x01f\x12" + varint(len(entry)) + entry
        value = b"\x52" + varint(len(func)) + func
    entry = b"\x0a\x01a\x12" + varint(len(value)) + value
    node = b"\x0a\x01d\x12\x04NoOp\x2a" + varint(len(entry)) + entry
    return graph.SerializeToString() + b"\x0a" + varint(len(node)) + node


def _nameless():
    graph = _graph()
    graph.node.add(op="NoOp")
    return graph.SerializeToString()


NO_MODELS = {
    "empty": (lambda: b"", "the file is empty"),
    "random": (lambda: np.random.default_rng(1).bytes(5000), "found"),
    "zeros": (lambda: bytes(5000), "of no known format"),
    "prose": (lambda: b"This is not a model at all.\n" * 9, "found"),
    "cut graph": (lambda: _graph(50).SerializeToString()[:-10], "damaged or cut off"),
    "cut saved model": (lambda: _saved_model().SerializeToString()[:-5], "damaged or cut off"),
    "no ops": (lambda: _graph(0).SerializeToString(), "a graph_def without a single op"),
    "nameless op": (_nameless, "not all of its ops have a name"),
    "too deep": (_deep, "nested too deep"),
    "other message": (lambda: b"\x4a\x03abc", "a protocol buffer of another type"),
    "bad text": (lambda: b'node { name: "a" opp: "NoOp" }', "1:18"),
    "deep text": (lambda: b"node { " + b"attr { value { func { " * 3000, "nested too deep"),
    "empty text": (lambda: b"versions { producer: 3 }", "without a single op"),
    "gzip": (lambda: gzip.compress(b"model"), "a gzip archive; unpack it"),
    "zip": (lambda: zipped(["a.txt"]), "a .keras file has a config.json"),
    "zipped directory": (lambda: zipped(["m/saved_model.pb"]), "unpack it and pass the directory"),
    "cut zip": (lambda: zipped(["config.json"])[:40], "a zip file that can't be read"),
    "cut chunks": (lambda: SIGNATURE + bytes(20), "a chunk header that is cut off"),
    "no chunks": (lambda: SIGNATURE, "its chunks don't fit together"),
    "lite": (lambda: b"\x1c\0\0\0TFL3" + bytes(100), "TensorFlow Lite"),
    "pickle": (lambda: b"\x80\x04\x95" + bytes(50), "pickle"),
}


@pytest.mark.parametrize("what", NO_MODELS)
def test_files_that_are_no_models(tmp_path, what):
    make, message = NO_MODELS[what]
    path = tmp_path / "model.pb"
    path.write_bytes(make())
    with pytest.raises(ModelError, match=message) as error:
        sniff(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_paths_that_are_no_models(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        sniff(tmp_path / "nothing")
    with pytest.raises(ModelError, match="has none of saved_model"):
        sniff(tmp_path)
    with pytest.raises(ModelError, match="there is no such file"):
        sniff("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="no file or directory"):
        sniff(tmp_path / "pipe")
    (tmp_path / "model.index").write_text("x")
    with pytest.raises(ModelError, match="holds a checkpoint"):
        sniff(tmp_path)


def test_directories_that_almost_are(tmp_path):
    (tmp_path / "7").mkdir()
    with pytest.raises(ModelError, match=r"pass one of its versions, such as '.*/7'"):
        sniff(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(_graph().SerializeToString())
    with pytest.raises(ModelError, match="holds a graph_def, no SavedModel"):
        sniff(tmp_path)


def test_every_cut_and_every_damaged_byte_is_a_model_or_a_model_error(tmp_path):
    path = tmp_path / "model.pb"
    whole = _saved_model().SerializeToString()
    damaged = [whole[:size] for size in range(len(whole))]
    damaged += [whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :] for i in range(len(whole))]
    outcomes = set()
    for content in damaged:
        path.write_bytes(content)
        try:
            outcomes.add(sniff(path).kind)
        except ModelError:
            outcomes.add("error")
    assert "error" in outcomes


def test_outermost_fields():
    assert outermost_fields(b"\x08\x96\x01\x12\x02ab\x12\x00") == {(1, VARINT): 1, (2, LENGTH): 2}
    with pytest.raises(CutOffError, match="ends at byte 7, the file at byte 3"):
        outermost_fields(b"\x12\x05a")
    with pytest.raises(ValueError, match="begins no field"):
        outermost_fields(b"\x00")
