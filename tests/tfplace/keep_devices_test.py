"""--keep_devices and --emit: what the model asks for stays, what is asked for is written."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfplace.cli import main

GPU0, GPU1 = "/device:GPU:0", "/device:GPU:1"
v1 = tf.compat.v1
EXTRA = "assets.extra/tfplace"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """y = tanh(x @ w) on devices of which one is nowhere; an op beside the run; a bad pair."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        w = v1.get_variable("w", initializer=np.ones([3, 2], np.float32), use_resource=True)
        with tf.device("/job:localhost/replica:0/task:0/device:GPU:1"):
            product = tf.matmul(x, w, name="product")
        with tf.device("/device:GPU:7"):
            tf.tanh(product, name="y")
        with tf.device("/gpu:0"):
            tf.negative(x, name="beside")
            tf.strings.as_string(x, name="text")
        v1.global_variables_initializer()
    path = tmp_path_factory.mktemp("keep") / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


def _optimize(model, out, *flags):
    words = ["optimize", model, "--cluster=k80x2", f"--output_dir={out}", "--verbosity=-1"]
    return main([*words, "--algorithm=random", "--max_trials=2", *flags])


def _devices(path):
    graph_def = graph_pb2.GraphDef.FromString(path.read_bytes())
    return {node.name: node.device for node in graph_def.node if node.device}


def test_device_strings_are_kept_where_the_cluster_has_them(model, tmp_path, capsys):
    out = tmp_path / "out"
    flags = ["--fetch=y", "--keep_devices", "--emit=graph_def,cleared,python", "--pin=^x$=CPU:0"]
    assert _optimize(model, out, *flags) == 0
    extra = out / EXTRA
    placed = _devices(extra / "graph.pb")
    assert placed["product"] == GPU1 and placed["beside"] == placed["text"] == GPU0
    assert placed["x"] == "/device:CPU:0" and placed["y"] != "/device:GPU:7"
    assert json.loads((extra / "placement.json").read_text())["product"] == GPU1
    assert _devices(extra / "cleared.pb") == {}
    assert [path.name for path in out.iterdir()] == ["assets.extra"]
    assert (extra / "cleared" / "saved_model.pb").exists()
    assert "def device_of(op):" in (extra / "placement.py").read_text()
    assert "load it" not in capsys.readouterr().out


def test_without_it_nothing_is_kept(model, tmp_path):
    assert _optimize(model, tmp_path / "out", "--fetch=y", "--pin=product=GPU:0") == 0
    placed = _devices(tmp_path / "out" / EXTRA / "graph.pb")
    assert placed["product"] == GPU0 and "beside" not in placed
    assert not (tmp_path / "out" / EXTRA / "cleared").exists()


def test_what_can_not_be_kept_is_said_with_ops_group_and_devices(model, tmp_path, capsys):
    assert _optimize(model, tmp_path / "out", "--fetch=text", "--keep_devices") == 4
    assert capsys.readouterr().err == (
        "tfplace: error: combining pins, colocation and kernels: op 'text' has no device: 'text' "
        "is pinned to /device:GPU:0 and has kernels only on /device:CPU:0; change --pin, "
        "--no_split or --keep_devices, or the cluster\n"
    )
    flags = ["--fetch=y", "--fetch=text", "--no_split=^product$|^text$", "--pin=product=GPU:1"]
    assert _optimize(model, tmp_path / "out", *flags) == 4
    error = capsys.readouterr().err
    assert "2 ops that must lie together, the colocation group of 'text', have no" in error
    assert "'product' is pinned to /device:GPU:1; 'text' has kernels only on /dev" in error


@pytest.mark.parametrize(
    ("emit", "found"), [("graphdef", "did you mean 'graph_def'?"), (",", "wanted one or more of")]
)
def test_unknown_forms_are_told(emit, found, model, tmp_path, capsys):
    assert _optimize(model, tmp_path / "out", f"--emit={emit}") == 1
    assert found in capsys.readouterr().err
