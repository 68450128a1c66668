"""A model with weights in pieces trains as it did, and everybody else sees whole weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from graphs import zoo
from graphs.errors import UsageError
from graphs.loading.sniff import sniff
from tfplace.api.load import make_whole

WIDTH, CLASSES, BATCH = 16, 4, 6


class Net(tf.Module):
    def __init__(self):
        rng = np.random.default_rng(0)

        def made(*shape):
            return tf.Variable(rng.normal(size=shape).astype(np.float32) * 0.3)

        self.weights = [made(8, WIDTH), made(WIDTH), made(WIDTH, WIDTH), made(WIDTH, CLASSES)]
        self.momenta = [tf.Variable(tf.zeros_like(weight)) for weight in self.weights]

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def predict(self, x):
        first, bias, second, last = self.weights
        return {"logits": tf.nn.relu(tf.nn.relu(x @ first + bias) @ second) @ last}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 8], name="x"),
            tf.TensorSpec([None], tf.int32, name="y"),
        ]
    )
    def train_step(self, x, y):
        with tf.GradientTape() as tape:
            logits = self.predict(x)["logits"]
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(each)
        gradients = tape.gradient(loss, self.weights)
        for weight, momentum, gradient in zip(self.weights, self.momenta, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=momentum.handle, lr=0.1, grad=gradient, momentum=0.9
            )
        return {"loss": loss}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    given, placed, net = str(folder / "given"), str(folder / "placed"), Net()
    signatures = {"train_step": net.train_step, "predict": net.predict}
    tf.saved_model.save(net, given, signatures=signatures)
    report = tfplace.optimize(
        given, cluster="k80x2", shards=2, cut="weights", output_dir=placed, max_trials=200,
        budget_seconds=5.0, batch_size=BATCH, signature="train_step", verify="structure",
    )  # fmt: skip
    assert {each["of"] for each in report.split["weights"]} == {1, 2}
    assert len(report.split["weights"]) == 8 and report.split["any_batch"]
    return given, placed


@pytest.fixture
def models(paths):
    return [tf.saved_model.load(path) for path in paths]


def fed(number, batch=BATCH):
    rng = np.random.default_rng(number)
    x = tf.constant(rng.normal(size=(batch, 8)).astype(np.float32))
    return {"x": x, "y": tf.constant(rng.integers(0, CLASSES, batch).astype(np.int32))}


def train(models, numbers, batch=BATCH, name="train_step"):
    given, placed = models
    for number in numbers:
        both = (
            float(model.signatures[key](**fed(number, batch))["loss"])
            for model, key in ((given, "train_step"), (placed, name))
        )
        assert next(both) == pytest.approx(next(both), rel=1e-5)


def values(model):
    return [v.numpy() for v in (*model.weights, *model.momenta)]


def assert_same_values(models):
    for one, other in zip(*map(values, models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_no_gpu_has_to_hold_a_whole_weight(paths):
    (meta_graph,) = sniff(paths[1]).proto.meta_graphs
    variables = [
        node.variable
        for node in meta_graph.object_graph_def.nodes
        if node.WhichOneof("kind") == "variable"
    ]
    assert [each.device for each in variables] == ["/device:CPU:0"] * 8


def test_steps_of_several_sizes_are_the_same(models):
    train(models, range(3))
    train(models, range(3, 5), batch=9)
    assert all(v.numpy().shape == (0,) for v in models[1].weights)
    assert make_whole(models[1]) == 8 and make_whole(models[1]) == 0
    assert_same_values(models)
    train(models, range(5, 7))


def test_others_read_whole_weights(models):
    train(models, range(2))
    train(models, range(2, 3), name="train_step_whole")
    train(models, range(3, 5))
    x = fed(9)["x"]
    for read in (
        lambda model: model.signatures["predict"](x=x)["logits"],
        lambda model: model.predict(x)["logits"],
    ):
        train(models, range(5, 6))
        one, other = map(read, models)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    make_whole(models[1])
    assert_same_values(models)


def test_checkpoints_go_both_ways(models, tmp_path):
    train(models, range(2))
    given, placed = (tf.train.Checkpoint(model=model) for model in models)
    prefix = given.write(str(tmp_path / "given"))
    train(models, range(2, 4))
    placed.read(prefix).assert_consumed()
    given.read(prefix)
    train(models, range(4, 6))
    make_whole(models[1])
    given.read(placed.write(str(tmp_path / "placed"))).assert_consumed()
    assert_same_values(models)
    train(models, range(6, 8))


def test_what_is_saved_in_pieces_is_no_checkpoint_of_the_model(models, tmp_path):
    train(models, range(1))
    given, placed = (tf.train.Checkpoint(model=model) for model in models)
    prefix = placed.write(str(tmp_path / "in_pieces"))
    with pytest.raises(ValueError, match="shape"):
        given.read(prefix)


def test_two_loads_have_pieces_of_their_own(models, paths):
    other = [models[0], tf.saved_model.load(paths[1])]
    start = values(models[0])
    train(models, range(2))
    for variable, value in zip((*models[0].weights, *models[0].momenta), start, strict=True):
        variable.assign(value)
    train(other, range(2))
    make_whole(models[1])
    assert_same_values([models[1], models[0]])


def test_a_graph_of_ops(tmp_path):
    path = str(tmp_path / "rnnlm.pb")
    zoo.write(zoo.build("rnnlm", size="tiny"), path)
    report = tfplace.optimize(
        path, cluster="k80x2", shards=2, cut="weights", output_dir=str(tmp_path / "placed"),
        max_trials=50, budget_seconds=5.0, verify="run",
    )  # fmt: skip
    assert report.split["weights"] and report.verified.outputs_equal


@pytest.mark.parametrize(
    "flags", [{"shards": 1}, {"shards": "auto"}, {"shards": 2, "batch_axis": ["x=0"]}]
)
def test_flags_that_do_not_go_together(paths, flags):
    with pytest.raises(UsageError, match="wanted --shards with the number of pieces"):
        tfplace.optimize(paths[0], cluster="k80x2", cut="weights", signature="train_step", **flags)


def test_a_step_without_such_weights(tmp_path):
    path = str(tmp_path / "dlrm.pb")
    zoo.write(zoo.build("dlrm", size="tiny"), path)
    with pytest.raises(UsageError, match="wanted --cut=batch"):
        tfplace.simulate(path, cluster="k80x2", shards=7, cut="weights")
