"""Split models of every kind, loaded in every way, train as their unsplit steps do."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from tests.rewrite.split.split_model_test import _emitted
from tests.rewrite.split.write.emission_test import (
    FEATURES,
    graph_def,
    meta_graph,
    saved_model_v1,
    saved_model_v2,
)

v1 = tf.compat.v1
SIZES = (5, 3, 8)
"""Of one it is split, of the others nobody has tried one."""


def keras_file(folder):
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.save(str(folder / "model.keras"))
    return str(folder / "model.keras"), LoadOptions(mode="train", batch_size=5)


KINDS = [
    graph_def,
    meta_graph,
    saved_model_v1,
    saved_model_v2,
    pytest.param(keras_file, marks=pytest.mark.corpus),
]


@pytest.fixture(scope="module", params=KINDS)
def emitted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    path, options = request.param(folder)
    return _emitted(path, folder / "split", 3, options)[1]


def inputs_of(specs, size):
    """{input: array} of a batch."""
    rng = np.random.default_rng(size)
    return {
        name: rng.integers(0, 3, size).astype(np.int32)
        if spec.dtype.is_integer
        else rng.normal(size=[size, *spec.shape[1:]]).astype(np.float32)
        for name, spec in sorted(specs.items())
    }


def losses_of(loaded, signature):
    """What a signature gives for batches of several sizes, one after the other."""
    function = loaded.signatures[signature]
    specs = function.structured_input_signature[1]
    return [
        {k: v.numpy() for k, v in function(**{
            name: tf.constant(array) for name, array in inputs_of(specs, size).items()
        }).items()}
        for size in SIZES
    ]  # fmt: skip


def assert_alike(one, other):
    for before, after in zip(one, other, strict=True):
        assert before.keys() == after.keys()
        for key, value in before.items():
            np.testing.assert_allclose(after[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("load", [tf.saved_model.load, tfplace.load])
def test_it_trains_in_tensorflow_2(emitted, load):
    split, whole = (
        losses_of(load(emitted), "train_step"),
        losses_of(load(emitted), "train_step_whole"),
    )
    assert_alike(split, whole)


def in_session(emitted, name, restored="", saved=""):
    """The same in a v1 Session, whose variables come from a checkpoint, and go to one."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        meta_graph_def = v1.saved_model.load(session, ["serve"], emitted)
        saver = v1.train.Saver(saver_def=meta_graph_def.saver_def) if restored or saved else None
        signature = meta_graph_def.signature_def[name]
        specs = {k: graph.get_tensor_by_name(i.name) for k, i in signature.inputs.items()}
        outputs = {k: i.name for k, i in signature.outputs.items()}
        if restored:
            saver.restore(session, restored)
        batches = [inputs_of(specs, size) for size in SIZES]
        found = [
            session.run(outputs, {specs[k]: array for k, array in batch.items()})
            for batch in batches
        ]
        return found, saver.save(session, saved) if saved else ""


def test_it_trains_in_a_session(emitted):
    names = ("train_step", "train_step_whole")
    assert_alike(*(in_session(emitted, name)[0] for name in names))


def test_a_checkpoint_goes_both_ways(emitted, tmp_path):
    """The split and the unsplit step have the same variables, each once, under its own key."""
    names = ("train_step", "train_step_whole")
    if sniff(emitted).proto.meta_graphs[0].HasField("object_graph_def"):
        trained, fresh = tf.saved_model.load(emitted), tfplace.load(emitted)
        for one, other, name in zip((trained, fresh), (fresh, trained), names, strict=True):
            losses_of(one, name)
            prefix = tf.train.Checkpoint(root=one).write(str(tmp_path / name))
            tf.train.Checkpoint(root=other).read(prefix).assert_existing_objects_matched()
            assert_alike(losses_of(one, names[0]), losses_of(other, names[1]))
        return
    for name in names:
        _, prefix = in_session(emitted, name, saved=str(tmp_path / name))
        assert_alike(*(in_session(emitted, each, restored=prefix)[0] for each in names))
