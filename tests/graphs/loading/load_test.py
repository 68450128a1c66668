"""Models of every kind, loaded and run."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from graphs.errors import FeedError, FetchError, ModelError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import new_message
from graphs.source_model import TensorSpec, Variable
from tests.graphs.loading import model_files

v1 = tf.compat.v1
X = np.arange(8, dtype=np.float32).reshape(2, 4)
Y = np.repeat([[6.0], [22.0]], 3, axis=1)  # X times a w of ones
TWO = LoadOptions(batch_size=2)
TWO_INFERENCE = LoadOptions(batch_size=2, mode="inference")
TWO_TRAIN = LoadOptions(batch_size=2, mode="train")


@pytest.fixture(scope="module")
def served_v1(folder):
    path = folder / "served_v1"
    model_files.write_saved_model_v1(path)
    return path


@pytest.fixture(scope="module")
def checkpointed(folder):
    """A MetaGraphDef with its checkpoint, whose w is all ones."""
    graph, saver = model_files.training_graph(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    prefix = str(folder / "checkpointed")
    with graph.as_default(), tf.compat.v1.Session() as session:
        session.run("init")
        value = graph.get_operation_by_name("w/Assign").inputs[1]
        session.run("w/Assign", {value: np.ones((4, 3), np.float32)})
        saver.save(session, prefix)
    return folder / "checkpointed.meta"


def test_train_step_signature(trained_v2):
    model = load(trained_v2, TWO)
    assert (model.kind, model.mode, model.step_origin) == (
        "saved_model_v2",
        "train",
        "signature train_step",
    )
    assert set(model.feeds) == {
        TensorSpec("train_step_x:0", "float32", (2, 4)),
        TensorSpec("train_step_labels:0", "int32", (2,)),
    }
    assert {v for v in model.variables if v.dtype == "float32"} == {
        Variable("w", "w", "float32", (4, 3), True),
        Variable("b", "b", "float32", (3,), True),
    }
    assert [v.trainable for v in model.variables if v.dtype == "int64"] == [False]
    assert model.saved_model_dir == str(trained_v2)
    assert model.guessed == ()
    assert model.origins is None
    feeds = {"train_step_x:0": X, "train_step_labels:0": np.array([0, 1], np.int32)}
    (first,), (second,) = model_files.run(model, feeds, times=2)
    np.testing.assert_allclose(first, np.log(3), rtol=1e-6)
    assert second != first


def test_assets_are_fed_while_tables_are_filled(trained_v2):
    model = load(trained_v2, LoadOptions(batch_size=2, signature="look_up"))
    assert model.mode == "inference"
    feeds = {"look_up_x:0": X, "look_up_word:0": np.array([b"b", b"?"], object)}
    ((row, y),) = model_files.run(model, feeds)
    np.testing.assert_array_equal(row, [1, -1])
    np.testing.assert_array_equal(y, Y)


def test_a_path_to_the_file_in_the_directory(trained_v2):
    model = load(trained_v2 / "saved_model.pb", TWO)
    assert model.saved_model_dir == str(trained_v2)
    assert model.kind == "saved_model_v2"


def test_a_training_step_is_made(served_v2):
    model = load(served_v2, TWO_TRAIN)
    assert model.mode == "train"
    assert model.step_origin == (
        "a training step made from 2 trainable variables: gradient descent on the mean squares "
        "of the float outputs of signature serving_default"
    )
    assert any("no training step" in sentence for sentence in model.guessed)
    origin = model.origins["StatefulPartitionedCall/StatefulPartitionedCall/matmul"]
    assert origin.node == "matmul"
    assert origin.function.startswith("__inference_serve")
    assert not any(name.startswith("train_step/") for name in model.origins)
    losses = [values[0] for values in model_files.run(model, {"serving_default_x:0": X}, times=2)]
    # mean(y^2) = (6^2 + 22^2) / 2; then w - 0.01 dL/dw and b - 0.01 dL/db.
    np.testing.assert_allclose(losses[0], 260.0)
    y = Y[:, :1]
    w = 1.0 - 0.01 * X.T @ (2 * y / 6)
    b = -0.01 * np.sum(2 * y / 6)
    np.testing.assert_allclose(losses[1], np.mean((X @ w + b) ** 2), rtol=1e-5)


def test_serving_signatures_alone_mean_inference_and_that_is_said(served_v2):
    model = load(served_v2, TWO)
    assert (model.mode, model.step_origin) == ("inference", "signature serving_default")
    assert "placed for inference; --mode=train makes a step" in " ".join(model.guessed)


def test_inference_is_run_where_it_is_asked_for(served_v2):
    model = load(served_v2, TWO_INFERENCE)
    assert (model.mode, model.step_origin) == ("inference", "signature serving_default")
    ((y,),) = model_files.run(model, {"serving_default_x:0": X})
    np.testing.assert_array_equal(y, Y)


def test_saved_model_v1(served_v1):
    model = load(served_v1, TWO_INFERENCE)
    assert model.kind == "saved_model_v1"
    assert model.variables == (Variable("w", "w", "float32", (4, 3), True),)
    ((y,),) = model_files.run(model, {"x:0": X})
    np.testing.assert_array_equal(y, Y)


def test_a_training_step_of_reference_variables(served_v1):
    model = load(served_v1, TWO_TRAIN)
    first, second = (values[0] for values in model_files.run(model, {"x:0": X}, times=2))
    np.testing.assert_allclose(first, 260.0)
    assert second < first


def test_tags_choose(folder):
    path = folder / "two_tags"
    model_files.write_saved_model_v1(path, ("train",), ("gpu", "serve"))
    for tags, fetch in ((("train",), "y:0"), (("serve", "gpu"), "z:0")):
        assert load(path, LoadOptions(tags=tags, mode="inference")).fetches == (fetch,)
    wanted = r"\{train\} \{gpu,serve\}, wanted \{serve\}; name one with --tags=A,B"
    with pytest.raises(ModelError, match=wanted):
        load(path)


def test_saved_model_as_text(served_v2, folder):
    path = folder / "text"
    shutil.copytree(served_v2, path)
    proto = new_message("saved_model")
    proto.ParseFromString((path / "saved_model.pb").read_bytes())
    (path / "saved_model.pb").unlink()
    (path / "saved_model.pbtxt").write_text(text_format.MessageToString(proto))
    assert load(path, TWO).graph_def == load(served_v2, TWO).graph_def


def test_saved_model_under_another_name(served_v2, folder):
    path = folder / "renamed"
    shutil.copytree(served_v2, path)
    (path / "saved_model.pb").rename(path / "model.bin")
    model = load(path / "model.bin", TWO_INFERENCE)
    assert model.kind == "saved_model_v2"
    assert tf.saved_model.load(model.saved_model_dir).w.shape == [4, 3]


def test_meta_graph_with_a_checkpoint(checkpointed):
    model = load(checkpointed, TWO)
    assert (model.kind, model.mode, model.step_origin) == (
        "meta_graph_def",
        "train",
        "the train_op collection, and loss",
    )
    assert model.saved_model_dir == ""
    assert model.initialization.checkpoint_prefix == str(checkpointed)[: -len(".meta")]
    assert model.initialization.random_variables == ()
    assert [v.name for v in model.variables if v.trainable] == ["w"]
    both = load(checkpointed, LoadOptions(batch_size=2, fetch=(*model.fetches, "loss:0")))
    first, second = (values[-1] for values in model_files.run(both, {"x:0": X}, times=2))
    np.testing.assert_allclose(first, 260.0)
    assert second != first


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_graph_def(folder, resource, binary):
    graph, _ = model_files.training_graph(tf.compat.v1.train.AdamOptimizer(), resource)
    name = f"graph_{resource}_{binary}"
    path = tf.io.write_graph(graph.as_graph_def(), str(folder), name, as_text=not binary)
    model = load(path, TWO)
    assert (model.kind, model.mode, model.fetches) == ("graph_def", "train", ("loss:0", "Adam"))
    assert model.step_origin == "the optimizer's updates, Adam, and loss"
    assert [v.name for v in model.variables if v.trainable] == ["w"]
    assert model.initialization.init_ops == ("init",)
    assert model.initialization.random_variables == ()
    assert model_files.run(model, {"x:0": X})[0][1:] == [None]


def test_shapes_are_told_or_guessed_and_written_into_the_graph(served_v2):
    model = load(served_v2, LoadOptions(mode="inference"))
    assert model.feeds == (TensorSpec("serving_default_x:0", "float32", (32, 4)),)
    assert model.guessed == ("input serving_default_x: dimension 0 unknown, taken as 32",)
    (node,) = [n for n in model.graph_def.node if n.name == "serving_default_x"]
    assert [dim.size for dim in node.attr["shape"].shape.dim] == [32, 4]
    for name in ("x", "serving_default_x", "serving_default_x:0"):
        told = load(served_v2, LoadOptions(mode="inference", input_shape={name: (5, 4)}))
        assert told.feeds[0].shape == (5, 4)
        assert told.guessed == ()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (LoadOptions(fetch=("nope",)), FetchError, "has no op 'nope'"),
        (LoadOptions(fetch=("NoOp:x",)), FetchError, "wanted OP or OP:OUTPUT"),
        (LoadOptions(signature="serving"), FetchError, "nearest: 'serving_default'"),
        (LoadOptions(input_shape={"xx": (2, 4)}), FetchError, "no input 'xx'"),
        (LoadOptions(input_shape={"x": (2, 5)}), FeedError, r"declares \[\?,4\]"),
        (LoadOptions(tags=("train",)), ModelError, r"tags \{serve\}, wanted \{train\}"),
    ],
)
def test_what_does_not_exist_is_an_error(served_v2, options, error, message):
    with pytest.raises(error, match=message) as caught:
        load(served_v2, options)
    assert type(caught.value) is error


def test_an_op_that_tensorflow_lacks_is_named_with_the_flag_for_it(tmp_path):
    graph_def = v1.GraphDef()
    graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = 1
    graph_def.node.add(name="y", op="NoSuchOp", input=["x"])
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_def.SerializeToString())
    with pytest.raises(ModelError, match=r"'y': .* has no op 'NoSuchOp'; .* --op_library=PATH"):
        load(path, LoadOptions(fetch=("y",)))
