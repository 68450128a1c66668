"""Files of strangers, drawn with the structure that they should have: read, or refused in words.

Nothing that one names may run, and none may take long: `pytest -m fuzz`.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphs.clusters.cluster_file import read_cluster
from graphs.errors import TfplaceError
from graphs.loading.feeds import given_shapes, read_feeds
from graphs.loading.keras_file import export_keras
from graphs.loading.load import load
from graphs.loading.sniff import ModelFile
from graphs.source_model import TensorSpec

pytestmark = pytest.mark.fuzz
OFTEN = settings(
    max_examples=300,
    deadline=10_000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

SELDOM = settings(OFTEN, max_examples=40, deadline=None)

names = st.sampled_from(["f0", "f1", "f2", "f3", "f4", "nothing"])
node_inputs = st.lists(
    st.sampled_from(["x", "c0:output:0", "c1:output:0", "t0:y:0", "^c0", "x:7", "", ":", "y"]),
    max_size=3,
)
nodes = st.tuples(
    st.sampled_from(["PartitionedCall", "StatefulPartitionedCall", "Tanh", "While", "If", "f1"]),
    names, node_inputs,
)  # fmt: skip
functions = st.dictionaries(names, st.lists(nodes, max_size=4), max_size=5)


@OFTEN
@given(functions, st.lists(nodes, min_size=1, max_size=4))
def test_function_libraries(tmp_path: Path, library, main):
    graph_def = tf.compat.v1.GraphDef()
    x = graph_def.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    for name, body in library.items():
        function = graph_def.library.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name="x", type=1)
        function.signature.output_arg.add(name="y", type=1)
        _add(function.node_def, body)
        function.ret["y"] = f"c{len(body) - 1}:output:0" if body else "x"
    _add(graph_def.node, main)
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_def.SerializeToString())
    _read_or_refused(lambda: load(str(path)))


def _add(to, drawn):
    for number, (op, function, inputs) in enumerate(drawn):
        node = to.add(name=f"c{number}", op=op, input=inputs)
        node.attr["T"].type = 1
        for key in ("f", "body", "cond", "then_branch", "else_branch"):
            node.attr[key].func.name = function
        for key in ("Tin", "Tout"):
            node.attr[key].list.type.append(1)


def _read_or_refused(read):
    try:
        read()
    except TfplaceError as error:
        assert str(error)


def _hostile(marker):
    function = {"module": "os", "class_name": "function", "config": "mkdir"}
    calls = {"name": "l", "function": function, "arguments": {"path": str(marker)}}
    return [
        function,
        {"class_name": "Lambda", "module": "keras.layers", "config": calls},
        {"class_name": "TFOpLambda", "config": {"function": "io.gfile.mkdir", "name": "t"}},
        {"module": "pathlib", "class_name": "Path", "config": {}},
        {"module": "builtins", "class_name": "function", "config": "exec"},
        [[["_CONSTANT_VALUE", -1, str(marker), {}]]],
        str(marker), None, [], {}, 10**30, -1, "relu",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "model.keras"
    inputs = tf_keras.Input([4])
    hidden = tf_keras.layers.Dense(2, "relu")(inputs)
    model = tf_keras.Model(inputs, tf_keras.layers.Activation("tanh")(hidden))
    model.compile("sgd", "mse")
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@SELDOM
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 1), st.booleans())
def test_keras_configurations(tmp_path: Path, honest, place, kind, more, is_of_keras_3):
    marker, path = tmp_path / "made", tmp_path / "model.keras"
    config = json.loads(honest["config.json"])
    for number in range(1 + more):
        holders = _holders(config)
        holder, key = holders[(place + 977 * number) % len(holders)]
        holder[key] = _hostile(marker)[(kind + number) % 13]
    metadata = {"keras_version": "3.15.1" if is_of_keras_3 else "2.21.0"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in honest.items():
            made = {"config.json": json.dumps(config), "metadata.json": json.dumps(metadata)}
            archive.writestr(name, made.get(name, content))
    _read_or_refused(lambda: export_keras(ModelFile(str(path), "keras_zip", None)))
    assert not marker.exists()


def _holders(config):
    found, waiting = [], [config]
    while waiting:
        each = waiting.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each)
        for key, value in items:
            found.append((each, key))
            waiting += [value] if isinstance(value, dict | list) else []
    return found


@OFTEN
@given(st.integers(0, 2**31), st.integers(0, 255), st.integers(0, 2**31))
def test_arrays(tmp_path: Path, place, byte, end):
    path = tmp_path / "feed.npz"
    np.savez_compressed(path, x=np.arange(6.0), y=np.array(["a"]))
    content = bytearray(path.read_bytes())
    content[place % len(content)] = byte
    path.write_bytes(content[: len(content) if end % 2 else end % len(content)])
    _read_or_refused(lambda: given_shapes(str(path)))
    _read_or_refused(lambda: read_feeds(str(path), [TensorSpec("x:0", "float64", (6,))]))


numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
keys = st.sampled_from("name devices links type memory_bytes latency bandwidth version".split())
trees = st.recursive(
    numbers, lambda each: st.lists(each, max_size=4) | st.dictionaries(keys, each), max_leaves=30
)


@OFTEN
@given(trees)
def test_clusters(tmp_path: Path, tree):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(tree))
    _read_or_refused(lambda: read_cluster(str(path)))
