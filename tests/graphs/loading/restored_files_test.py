"""A model whose files are not whole is refused before any work."""

import shutil

import pytest
import tensorflow as tf

from graphs.errors import ModelError
from graphs.loading.load import load, require_whole
from graphs.source_model import Initialization


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A SavedModel of one variable, f4[8, 4], and TensorFlow's string beside it."""
    model = tf.Module()
    model.weights = tf.Variable(tf.ones([8, 4]))
    call = tf.function(lambda x: x @ model.weights)
    signature = call.get_concrete_function(tf.TensorSpec([2, 8]))
    path = tmp_path_factory.mktemp("models") / "saved"
    tf.saved_model.save(model, str(path), signatures=signature)
    return path


@pytest.fixture
def copy(saved, tmp_path):
    """(directory, its index, its data)."""
    path = tmp_path / "copy"
    shutil.copytree(saved, path)
    variables = path / "variables"
    return path, variables / "variables.index", next(variables.glob("*.data-*"))


def test_a_whole_model_loads(copy):
    assert load(copy[0]).initialization.checkpoint_prefix


@pytest.mark.parametrize("kept", [0, 100, -7])
def test_data_that_are_cut_off_are_refused(copy, kept):
    path, _, data = copy
    data.write_bytes(data.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"variables .*copy the whole model again"):
        load(path)


def test_missing_data_are_refused(copy):
    copy[2].unlink()
    with pytest.raises(ModelError, match=r"variables .*copy the whole model again"):
        load(copy[0])


@pytest.mark.parametrize("content", [b"", b"x" * 400])
def test_a_damaged_index_is_refused(copy, content):
    copy[1].write_bytes(content)
    with pytest.raises(ModelError, match=r"can't be read .*copy the whole model again"):
        load(copy[0])


def test_a_missing_asset_is_refused():
    with pytest.raises(ModelError, match=r"asset '/nowhere/words.txt' is missing"):
        require_whole("model", Initialization(asset_feeds={"words:0": "/nowhere/words.txt"}))
