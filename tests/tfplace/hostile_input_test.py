"""Damaged, malicious and senseless input: one line, the contract's status, nothing written."""

import contextlib
import gzip
import io
import json
import os
import struct

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from tests.graphs.loading.model_files import zipped
from tests.rewrite.graphs import add_call, add_function, add_op, shared_function
from tfplace.cli import main


def _graph():
    """y = -x, z = y + y, for x of shape [2, 3]."""
    graph = graph_pb2.GraphDef()
    graph.versions.producer = 1882
    x = add_op(graph.node, "x", "Placeholder")
    for size in (2, 3):
        x.attr["shape"].shape.dim.add(size=size)
    add_op(graph.node, "y", "Neg", ("x",))
    add_op(graph.node, "z", "Add", ("y", "y"))
    return graph


def _changed(change):
    def make(path):
        graph = _graph()
        change(graph)
        path.write_bytes(graph.SerializeToString())

    return make


def file_of(content):
    return lambda path: path.write_bytes(content)


def _shape(*sizes):
    def change(graph):
        del graph.node[0].attr["shape"].shape.dim[:]
        for size in sizes:
            graph.node[0].attr["shape"].shape.dim.add(size=size)

    return _changed(change)


def _constant(graph):
    node = add_op(graph.node, "c", "Const")
    node.attr["dtype"].type = types_pb2.DT_FLOAT
    node.attr["value"].tensor.dtype = types_pb2.DT_FLOAT
    graph.node[1].input[0] = "c"
    return node.attr["value"].tensor


def _constant_cut(graph):
    tensor = _constant(graph)
    tensor.tensor_shape.dim.add(size=100)
    tensor.tensor_content = b"abcde"


def _calls(num_functions, last):
    """f0 calls f1 calls ...; the last one calls `last`."""

    def change(graph):
        add_call(graph.node, "call", "f0", ("x",))
        graph.node[1].input[0] = "call"
        names = [f"f{index}" for index in range(num_functions)]
        for name, callee in zip(names, [*names[1:], last], strict=True):
            function = add_function(graph, name)
            add_call(function.node_def, "inner", callee, ("x",))
            function.ret["y"] = "inner:output:0"

    return _changed(change)


def _function(damage):
    def change(graph):
        add_call(graph.node, "call", "f", ("x",))
        graph.node[1].input[0] = "call"
        function = add_function(graph, "f")
        add_op(function.node_def, "neg", "Neg", ("x",))
        function.ret["y"] = "neg:y:0"
        damage(graph, function)

    return _changed(change)


def _saved_model(change):
    def make(path):
        model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
        meta_graph = model.meta_graphs.add()
        meta_graph.meta_info_def.tags.append("serve")
        meta_graph.graph_def.CopyFrom(_graph())
        signature = meta_graph.signature_def["serving_default"]
        signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", types_pb2.DT_FLOAT
        signature.outputs["z"].name, signature.outputs["z"].dtype = "z:0", types_pb2.DT_FLOAT
        change(meta_graph)
        path.mkdir()
        (path / "saved_model.pb").write_bytes(model.SerializeToString())

    return make


def _asset(name):
    def change(meta_graph):
        asset = meta_graph.asset_file_def.add(filename=name)
        asset.tensor_info.name = "x:0"

    return _saved_model(change)


def _variables_missing(meta_graph):
    meta_graph.saver_def.restore_op_name = "restore"
    variable = meta_graph.graph_def.node.add(name="v", op="VarHandleOp")
    variable.attr["dtype"].type = types_pb2.DT_FLOAT
    variable.attr["shape"].shape.SetInParent()


def _output(name):
    return lambda meta_graph: setattr(
        meta_graph.signature_def["serving_default"].outputs["z"], "name", name
    )


def _cluster(key, text):
    """The cluster file of k80x2 with one figure of its last device replaced by `text`."""

    def words(folder):
        value = cluster_to_json(named("k80x2"))
        value["devices"][-1][key] = "FIGURE"
        (folder / "c.json").write_text(json.dumps(value).replace('"FIGURE"', text))
        return [f"--cluster={folder / 'c.json'}"]

    return words


def _file(flag, content):
    def words(folder):
        (folder / "given").write_bytes(content)
        return [f"--{flag}={folder / 'given'}"]

    return words


def _feed(**arrays):
    def words(folder):
        np.savez(folder / "feed.npz", **arrays)
        return [f"--feed={folder / 'feed.npz'}"]

    return words


def _nested_text(depth):
    return b'node { name: "a" op: "NoOp" ' + b'attr { key: "a" value { func { ' * depth


WHOLE = _graph().SerializeToString()
WITH_CALLS = shared_function().SerializeToString()
MODELS = {
    "no file": (lambda path: None, "no such file"),
    "empty directory": (lambda path: path.mkdir(), "has none of saved_model.pb"),
    "fifo": (os.mkfifo, "no file or directory"),
    "empty": (file_of(b""), "the file is empty"),
    "random": (file_of(np.random.default_rng(3).bytes(4000)), "reading model"),
    "zeros": (file_of(bytes(4000)), "of no known format"),
    "truncated": (file_of(WHOLE[:-7]), "cut off"),
    "bit-flipped tag": (file_of(bytes([WHOLE[0] ^ 0x40]) + WHOLE[1:]), "reading model"),
    "length beyond the end": (file_of(b"\x0a\xff\xff\xff\xff\x07abc"), "cut off"),
    "endless varint": (file_of(b"\xff" * 100), "reading model"),
    "gzip": (file_of(gzip.compress(WHOLE)), "unpack it"),
    "pickle": (file_of(b"\x80\x04\x95" + bytes(50)), "pickle"),
    "zip of something": (file_of(zipped(["a.txt"])), "no Keras model"),
    "keras without content": (file_of(zipped(["config.json", "metadata.json"])), "eras"),
    "hdf5 without content": (file_of(b"\x89HDF\r\n\x1a\n" + bytes(500)), "eras"),
    "text that ends": (file_of(b'node { name: "a" op: '), "an error at"),
    "deep text": (file_of(_nested_text(5000)), "nested too deep"),
    "text, not UTF-8": (file_of(b'node { name: "\xff\xfe" op: "NoOp" }'), "an error at"),
    "cycle": (_changed(lambda g: g.node[1].input.__setitem__(0, "z")), "something to run"),
    "op that uses itself": (_changed(lambda g: g.node[1].input.append("^y")), "cycle"),
    "two ops of one name": (_changed(lambda g: g.node.add().CopyFrom(g.node[1])), "same name"),
    "dangling input": (_changed(lambda g: g.node[1].input.__setitem__(0, "no")), "not defined"),
    "dangling control": (_changed(lambda g: g.node[2].input.append("^no")), "not defined"),
    "no such output": (
        _changed(lambda g: g.node[1].input.__setitem__(0, "x:7")),
        "invalid output 7",
    ),
    "input that is none": (
        _changed(lambda g: g.node[1].input.__setitem__(0, "x:y:z:0")),
        "op 'y' uses 'x:y:z:0', which is not defined",
    ),
    "too few inputs": (
        _changed(lambda g: g.node[2].input.pop()),
        "do not match 1 inputs specified",
    ),
    "unknown op": (_changed(lambda g: setattr(g.node[1], "op", "Ngg")), "Ngg"),
    "endless name": (_changed(lambda g: setattr(g.node[1], "op", "N" * 10**5)), "NN...NN"),
    "no type": (_changed(lambda g: g.node[1].attr.pop("T")), "NodeDef missing attr 'T'"),
    "type that is none": (
        _changed(lambda g: setattr(g.node[1].attr["T"], "type", 9999)),
        "invalid DataType enum: 9999",
    ),
    "attribute without value": (
        _changed(lambda g: g.node[1].attr["T"].Clear()),
        "missing value with expected type 'type'",
    ),
    "op without name": (_changed(lambda g: setattr(g.node[1], "name", "")), "name and a type"),
    "negative shape": (_shape(2, -3), "sizes are 0 or more"),
    "shape of a billion squared": (_shape(10**9, 10**9), "no machine holds more"),
    "shape that no machine holds": (_shape(2**31, 2**30), "no machine holds more"),
    "shape beyond 64 bits": (_shape(*[2**62] * 4), "is too large"),
    "constant without its value": (_changed(_constant_cut), "a value of 5 bytes"),
    "recursion": (_calls(2, "f0"), "recursi"),
    "functions 300 deep": (_calls(300, "f0"), "calls itself"),
    "no such function": (_calls(1, "nothing"), "nothing"),
    "function without its result": (
        _function(lambda g, f: f.ret.clear()),
        "its body uses '', which is neither",
    ),
    "function without an argument": (
        _function(lambda g, f: f.signature.input_arg.pop()),
        "its body uses 'x', which is neither",
    ),
    "result of no op": (
        _function(lambda g, f: f.ret.update(y="no:y:0")),
        "its body uses 'no:y:0', which is neither",
    ),
    "outside asset": (_asset("../../../../etc/passwd"), "outside of 'assets'"),
    "absolute asset": (_asset("/etc/passwd"), "outside of 'assets'"),
    "variables missing": (_saved_model(_variables_missing), "variables are missing"),
    "output of no op": (_saved_model(_output("no:0")), "no"),
    "output that is no name": (_saved_model(_output(":")), "looking up the fetch ':'"),
}
WORDS = {
    "no such cluster": (lambda folder: ["--cluster=k80x3"], 2, "did you mean"),
    "NaN": (_cluster("memory", "NaN"), 2, "memory"),
    "negative": (_cluster("memory", "-5"), 2, "memory"),
    "infinite": (_cluster("bandwidth_bytes_per_second", "Infinity"), 2, "bandwidth"),
    "a number of 400 digits": (_cluster("slots", "9" * 400), 2, "slots"),
    "figure of another type": (_cluster("slots", "[]"), 2, "slots"),
    "cluster cut off": (_file("cluster", b'{"name": "a"'), 2, "given"),
    "deep cluster": (_file("cluster", b"[" * 100_000), 2, "given"),
    "no such feed": (lambda folder: ["--feed=/nowhere.npz"], 2, "no such file"),
    "feed that is none": (_file("feed", b"PK\x03\x04" + bytes(99)), 2, ".npz"),
    "pickled feed": (_feed(x=np.array([{}], dtype=object)), 2, ".npz"),
    "feed of another shape": (_feed(x=np.zeros((2, 5), np.float32)), 2, "shape"),
    "feed of another type": (_feed(x=np.zeros((2, 3), np.int64)), 2, "int64"),
    "feed of nothing": (_feed(q=np.zeros(3)), 2, "no input 'q'"),
    "no such fetch": (lambda folder: ["--fetch=q"], 2, "'q'"),
    "fetch that is no name": (lambda folder: ["--fetch=:::"], 2, "looking up the fetch ':::'"),
    "no such signature": (lambda folder: ["--signature=q"], 2, "'q'"),
    "negative input": (
        lambda folder: ["--input_shape=x=-2,3"],
        1,
        "(-2, 3); want sizes of 0 or more",
    ),
    "contradicting input": (
        lambda folder: ["--input_shape=x=2,5"],
        2,
        "x=2,5: the model declares [2,3]",
    ),
    "endless input": (
        lambda folder: ["--input_shape=x=" + "9" * 60],
        2,
        "99: the model declares [2,3]",
    ),
    "reserve NaN": (lambda folder: ["--memory_reserve=nan"], 1, "wanted a number"),
    "placement cut off": (_file("placement", b'{"x": '), 2, "not a JSON file"),
    "placement of nothing": (_file("placement", b'{"q": "/device:GPU:0"}'), 2, "no op 'q'"),
    "placement nowhere": (_file("placement", b'{"x": "/device:GPU:9"}'), 2, "no device"),
    "deep placement": (_file("placement", b"[" * 100_000), 2, "not a JSON file"),
    "binary placement": (_file("placement", struct.pack("<9d", *range(9))), 2, "not a JSON"),
    "dump in the model's place": (
        lambda folder: [f"--dump_problem={folder / 'model.pb'}"],
        2,
        "model.pb is read, and would be lost",
    ),
    "timeline in the feed's place": (
        lambda folder: [*_feed(x=np.zeros((2, 3)))(folder), f"--timeline={folder / 'feed.npz'}"],
        2,
        "feed.npz is read, and would be lost",
    ),
    "pin to nowhere": (lambda folder: ["--pin=y=GPU:9"], 1, "no device"),
    "pin that is none": (lambda folder: ["--pin=(=GPU:0"], 1, "no regular expression"),
    "pins that contradict": (lambda folder: ["--pin=y=GPU:0", "--pin=y=GPU:1"], 4, "another"),
}


def _run(model, words, folder, capsys):
    """Status and the one line on stderr; nothing may be printed or left behind."""
    before = sorted(folder.iterdir())
    status = main(["simulate", str(model), "--cluster=k80x2", "--verbosity=-1", *words])
    captured = capsys.readouterr()
    assert captured.err.startswith("tfplace: error: ") and captured.err.count("\n") == 1
    assert len(captured.err) < 1500
    assert captured.out == "" and sorted(folder.iterdir()) == before
    return status, captured.err


@pytest.mark.parametrize("what", MODELS)
def test_bad_models(what, tmp_path, capsys):
    make, found = MODELS[what]
    make(tmp_path / "model.pb")
    status, error = _run(tmp_path / "model.pb", [], tmp_path, capsys)
    assert status == 2
    assert found in error


@pytest.mark.parametrize("what", WORDS)
def test_bad_words_and_their_files(what, tmp_path, capsys):
    make_words, wanted, found = WORDS[what]
    (tmp_path / "model.pb").write_bytes(WHOLE)
    words = make_words(tmp_path)
    status, error = _run(tmp_path / "model.pb", words, tmp_path, capsys)
    assert status == wanted
    assert found in error


@st.composite
def _damaged(draw):
    """A small graph, cut, with flipped bits, or with bytes put in or taken out."""
    content = bytearray(draw(st.sampled_from([WHOLE, WITH_CALLS])))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content) - 1)) if content else 0
        kind = draw(st.sampled_from(["flip", "cut", "insert", "remove"]))
        if kind == "flip" and content:
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del content[at:]
        elif kind == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=9))
        else:
            del content[at : at + draw(st.integers(1, 9))]
    return bytes(content)


@seed(6)
@settings(max_examples=40, deadline=None, database=None)
@given(_damaged(), st.sampled_from([(), ("--batch_size=3",), ("--input_shape=x=2,3",)]))
def test_damage_of_any_kind_is_a_model_or_one_line(tmp_path_factory, content, words):
    path = tmp_path_factory.mktemp("damaged") / "model.pb"
    path.write_bytes(content)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = main(["simulate", str(path), "--cluster=k80x2", "--verbosity=-1", *words])
    assert status in (0, 1, 2)
    assert errors.getvalue().count("\n") == (status != 0)
