"""A placement that was written is read again: the same step, and the same step time."""

import json

import pytest
import tensorflow as tf

from tfplace.cli import main


class Trained(tf.Module):
    """Two layers whose gradients are large enough to be added in turn; the step calls a function.

    In the op graph the call has ops before and behind its body that the model doesn't have.
    """

    def __init__(self):
        super().__init__()
        self.weights = [tf.Variable(tf.ones([128, 128]), name=name) for name in ("u", "v")]

    @tf.function
    def updated(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ self.weights[0]) @ self.weights[1])
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    @tf.function(input_signature=[tf.TensorSpec([12, 128], name="x")])
    def train_step(self, x):
        return {"loss": self.updated(x)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("trained") / "model")
    trained = Trained()
    tf.saved_model.save(trained, path, signatures={"train_step": trained.train_step})
    return path


@pytest.mark.parametrize("shards", ["1", "3"])
@pytest.mark.parametrize("order", ["none", "edges"])
def test_it_is_predicted_to_take_what_it_took(
    model, shards, order, slow_cpu_cluster, tmp_path, capsys
):
    out, flags = tmp_path / "out", [f"--cluster={slow_cpu_cluster}", f"--shards={shards}"]
    search = ["--algorithm=random", "--max_trials=40", "--seed=1", "--verify=structure"]
    words = [*flags, f"--order={order}", *search, f"--output_dir={out}", "--verbosity=-1"]
    assert main(["optimize", model, *words]) == 0
    files = out / "assets.extra/tfplace"
    report = json.loads((files / "report.json").read_text())
    assert len(set(json.loads((files / "placement.json").read_text()).values())) > 1
    capsys.readouterr()
    # Also where the file alone says that sums were added in turn.
    for read in {order, "none"}:
        words = [*flags, f"--order={read}", f"--placement={files / 'placement.json'}"]
        assert main(["simulate", model, *words, "--format=json"]) == 0
        step_seconds = json.loads(capsys.readouterr().out)["step_seconds"]
        without = report["order"]["step_seconds_without"] if read != order else None
        assert step_seconds == pytest.approx(without or report["best"]["step_seconds"], rel=1e-9)
