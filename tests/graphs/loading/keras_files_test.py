"""Keras's own files, of both Keras 3 and tf_keras, loaded and run."""

import zipfile

import keras
import numpy as np
import pytest

from graphs.errors import ModelError
from graphs.loading.feeds import generate_feeds
from graphs.loading.load import load
from tests.graphs.loading import model_files
from tests.graphs.loading.load_test import TWO, TWO_TRAIN, X


def test_keras_zip_and_hdf5(folder):
    inputs = keras.Input((4,), name="features")
    outputs = keras.layers.Dense(3, kernel_initializer="ones")(inputs)
    keras_model = keras.Model(inputs, outputs)
    for name in ("model.keras", "model.h5"):
        keras_model.save(folder / name)
        renamed = folder / (name + ".bin")
        (folder / name).rename(renamed)
        assert load(renamed, TWO).mode == "inference"
        model = load(renamed, TWO_TRAIN)
        assert (model.kind, model.mode, model.path) == ("keras", "train", str(renamed))
        assert sorted(v.shape for v in model.variables if v.trainable) == [(3,), (4, 3)]
        feed = model.feeds[0].tensor
        losses = [values[0] for values in model_files.run(model, {feed: X}, times=2)]
        np.testing.assert_allclose(losses[0], 260.0)
        assert losses[1] < losses[0]


def test_tf_keras_hdf5(folder):
    import tf_keras

    model = tf_keras.Sequential(
        [
            tf_keras.layers.Embedding(10, 4, input_length=5),
            tf_keras.layers.LSTM(3),
            tf_keras.layers.Dense(2),
        ]
    )
    path = folder / "tf_keras.h5"
    model.save(path)
    loaded = load(path, TWO_TRAIN)
    assert loaded.kind == "keras"
    assert sum(v.trainable for v in loaded.variables) == 6
    feeds = generate_feeds(loaded.graph_def, loaded.feeds, loaded.fetches, seed=0)
    (ids,) = feeds.values()
    assert ids.dtype == np.float32 and set(ids.ravel()) <= set(range(10))
    losses = [values[0] for values in model_files.run(loaded, feeds, times=2)]
    assert losses[1] < losses[0]


def test_keras_code_is_not_run(folder):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2, name="evil")])
    for name in ("lambda.keras", "lambda.h5"):
        model.save(folder / name)
        with pytest.raises(ModelError, match="'evil' is a Lambda with Python code"):
            load(folder / name)


def test_keras_weights_only_and_damage(folder):
    import h5py

    with h5py.File(folder / "weights.h5", "w") as file:
        file["kernel"] = np.ones(3)
    with pytest.raises(ModelError, match="weights only"):
        load(folder / "weights.h5")
    (folder / "cut.h5").write_bytes((folder / "weights.h5").read_bytes()[:600])
    with pytest.raises(ModelError, match="damaged"):
        load(folder / "cut.h5")
    with zipfile.ZipFile(folder / "unknown.keras", "w") as archive:
        archive.writestr("config.json", '{"class_name": "NoSuchModel", "config": {}}')
        archive.writestr("metadata.json", '{"keras_version": "3.0.0"}')
    with pytest.raises(ModelError, match="Keras can't load it"):
        load(folder / "unknown.keras")
