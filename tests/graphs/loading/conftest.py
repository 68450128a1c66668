"""Models that several tests of loading read."""

import pytest
import tensorflow as tf

from tests.graphs.loading import model_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def trained_v2(folder):
    """A TensorFlow 2 SavedModel with serving and training signatures and an asset."""
    vocabulary = folder / "words.txt"
    vocabulary.write_text("a\nb\n")
    model = model_files.TrainedDense(str(vocabulary))
    path = folder / "trained_v2"
    signatures = {
        "serving_default": model.serve,
        "look_up": model.look_up,
        "train_step": model.train_step,
    }
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


@pytest.fixture(scope="module")
def served_v2(folder):
    """A TensorFlow 2 SavedModel that only serves."""
    model = model_files.Dense()
    path = folder / "served_v2"
    tf.saved_model.save(model, str(path), signatures={"serving_default": model.serve})
    return path
