"""Configurations that would run or read something, and those of honest models."""

import io
import json
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from hypothesis import given
from hypothesis import strategies as st

from graphs.errors import ModelError
from graphs.loading.keras_contents import (
    UnsafeError,
    limited_weights,
    member_text,
    parsed,
    require_harmless,
    require_own_weights,
)
from graphs.loading.keras_file import export_keras
from graphs.loading.sniff import ModelFile


def named(module, name, kind="function", **config):
    inner = name if kind == "function" else config
    return {"module": module, "class_name": kind or name, "config": inner, "registered_name": name}


def layer(kind, module="keras.layers", **config):
    return {"module": module, "class_name": kind, "config": {"name": "l", **config}}


UNSAFE = {
    "function of a module": layer("Lambda", function=named("os", "system")),
    "mask": layer("Lambda", function=named("builtins", "relu"), mask=named("os", "mkdir")),
    "shape": layer("Lambda", function=named("keras.ops", "sum"), output_shape=["code", None]),
    "code": layer("Lambda", function={"class_name": "__lambda__", "config": {"code": "4wEA"}}),
    "code of older files": layer("Lambda", module=None, function=["4wEA", None, None]),
    "function of older files": layer("Lambda", function="system", function_type="function"),
    "built in": layer("Activation", activation=named("builtins", "exec")),
    "function of keras that loads": layer(
        "Activation", activation=named("keras.utils", "get_file")
    ),
    "class that is a function": layer("Dense", activation=named("keras.utils", "get_file", "")),
    "class of a module": named("subprocess", "Popen", "", args="ls"),
    "module that is only imported": {"module": "antigravity", "class_name": "X", "config": [1]},
    "module that begins alike": named("kerasx.layers", "Dense", ""),
    "loss": {"compile_config": {"loss": named("os", "system")}},
    "model in a layer": layer("TFSMLayer", filepath="/somewhere"),
    "pickle in a layer": layer("TorchModuleWrapper", module=None),
    "file of words": layer("StringLookup", vocabulary="/etc/passwd"),
    "column of a file": layer("DenseFeatures", feature_columns=[]),
    "TensorFlow removes files": layer("TFOpLambda", function="io.gfile.rmtree"),
    "TensorFlow writes a file": layer("TFOpLambda", function="compat.v1.write_file"),
    "raw op": layer("TFOpLambda", function="raw_ops.WriteFile"),
    "Python's function": layer("TFOpLambda", function="py_function"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_would_run_or_read_something_is_refused(name):
    inside = {"config": {"layers": [layer("Dense"), {"config": [UNSAFE[name]]}]}}
    with pytest.raises(UnsafeError):
        require_harmless(inside)


HONEST = [
    layer("Lambda", function=named("builtins", "tanh"), output_shape=[None, 4], mask=None),
    layer("Dense", activation="relu", kernel_regularizer=named("keras.regularizers", "L2", "")),
    layer("StringLookup", vocabulary=["a", "b"]),
    layer("TFOpLambda", function="math.reduce_sum"),
    layer("TFOpLambda", function="compat.v1.nn.softmax_cross_entropy_with_logits"),
    layer("TFOpLambda", function="reshape"),
    layer("SlicingOpLambda", module="keras.src.layers.core.tf_op_layer", function="getitem"),
    named("keras.src.models.functional", "Functional", ""),
    named("builtins", "mean_squared_error"),
    named("tensorflow.python.ops.init_ops_v2", "Constant", "", value=1.0),
    {"class_name": "Dense", "config": {"units": 4}},
    {"class_name": "__keras_tensor__", "config": {"shape": [None, 8]}},
    named("tf_keras.src.engine.sequential", "Sequential", ""),
]


def test_what_is_keras_own_is_taken():
    require_harmless(HONEST)


def test_a_deep_configuration_and_one_that_unpacks_to_much_are_refused(tmp_path):
    with pytest.raises(UnsafeError, match="nested too deep"):
        parsed("[" * 100_000 + "]" * 100_000)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b" " * (1 << 27))
    with zipfile.ZipFile(path) as archive, pytest.raises(UnsafeError, match="unpacks to 128 MiB"):
        member_text(archive, "config.json")


def _external_link(file, other):
    file["w"] = h5py.ExternalLink(other, "/w")


def _external_bytes(file, other):
    file.create_dataset("w", (4,), "u1", external=[(other, 0, 4)])


def _virtual(file, other):
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(other, "w", (4,))
    file.create_virtual_dataset("g/w", layout)


def _nothing_but_a_shape(file, other):
    del other
    file.create_dataset("w", (1 << 28,), "f4")


@pytest.mark.parametrize("write", [_external_link, _external_bytes, _virtual, _nothing_but_a_shape])
def test_weights_of_other_files_or_of_no_bytes_are_refused(tmp_path, write):
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file["honest"] = np.ones(4)
        file["again"] = file["/"]  # a circle
        write(file, str(tmp_path / "other"))
    with pytest.raises(UnsafeError):
        require_own_weights(path, path.stat().st_size)


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_layers_make_no_more_weights_than_a_file_can_hold(framework):
    add_weight = framework.layers.Layer.add_weight
    with limited_weights(framework, 100):
        framework.Sequential([framework.Input([4]), framework.layers.Dense(3)])
        with pytest.raises(UnsafeError, match="many times more weights"):
            framework.layers.Dense(10**10).build([None, 4])
        with pytest.raises(UnsafeError):
            framework.layers.Embedding(10**6, 10**5).build([None])
    assert framework.layers.Layer.add_weight is add_weight


@pytest.mark.parametrize(
    "content", [b"1", b"[]", b'"x"', b"null", b"{}", b'{"config": 1}', b"\xff"]
)
def test_what_is_no_configuration_is_damaged(tmp_path: Path, content: bytes):
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", content)
        archive.writestr("metadata.json", content)
        archive.writestr("model.weights.h5", io.BytesIO().getvalue())
    with pytest.raises(ModelError):
        export_keras(ModelFile(str(path), "keras_zip", None, ""))


words = st.sampled_from(["Lambda", "Dense", "function", "class_name", "config", "module", "os"])
leaves = st.none() | st.booleans() | st.integers() | words | st.text(max_size=3)


@given(
    st.recursive(leaves, lambda each: st.lists(each) | st.dictionaries(words, each), max_leaves=40)
)
def test_any_json_is_harmless_or_refused(config):
    try:
        require_harmless(json.loads(json.dumps(config)))
    except UnsafeError as error:
        assert str(error)
