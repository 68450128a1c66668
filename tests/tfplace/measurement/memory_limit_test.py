"""The memory limit of a device, predicted and real."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from graphs.host import child
from graphs.host.child import begin_to_fork
from graphs.loading.load_options import LoadOptions
from graphs.problem import Infeasible, Measurement
from tfplace.choosing.memory.predicted_peaks import predicted_peaks
from tfplace.choosing.real_runs.peak_memory import MemoryPeak, compare_memory
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.simulation.evaluator import SimulatingEvaluator

v1 = tf.compat.v1
MIB = 2**20
DEVICES = ("/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0")


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedModel:
    """Two variables of 32 MiB; each of two workers has 60 MiB."""
    with tf.Graph().as_default() as graph:
        sums = []
        for index in range(2):
            variable = v1.get_variable(
                f"v{index}",
                [8 * MIB],
                initializer=v1.random_uniform_initializer(),
                use_resource=True,
            )
            sums.append(tf.reduce_max(variable, name=f"max{index}"))
        tf.add(*sums, name="loss")
        v1.global_variables_initializer()
    model = tmp_path / "model.pb"
    model.write_bytes(graph.as_graph_def().SerializeToString())
    devices = [{"name": name, "type": "CPU", "memory": "60MiB"} for name in DEVICES]
    link = {"bytes_per_second": 1e9, "latency_seconds": 1e-3}
    cluster = tmp_path / "cluster.json"
    cluster.write_text(
        json.dumps(
            {"name": "small", "communication": "duplex", "devices": devices, "default_link": link}
        )
    )
    load = LoadOptions(fetch=("loss",))
    return prepare(ProblemOptions(model=str(model), cluster=str(cluster), load=load), trace=False)


def _placement(prepared: PreparedModel, device_of_variable: Sequence[int]) -> np.ndarray:
    return np.array(
        [device_of_variable["1" in name] for name in prepared.problem.graph.op_names], np.int32
    )


def test_what_is_predicted_not_to_fit_really_does_not(prepared: PreparedModel) -> None:
    placements = {"together": _placement(prepared, (0, 0)), "apart": _placement(prepared, (0, 1))}
    predicted = SimulatingEvaluator(prepared.problem).evaluate(np.stack(list(placements.values())))
    assert isinstance(predicted[0], Infeasible) and predicted[0].reason == "memory"
    assert isinstance(predicted[1], Measurement)
    measured = compare_memory(prepared, placements, StepLimits())
    assert isinstance(measured["together"], str) and "OOM" in measured["together"]
    apart = measured["apart"]
    assert not isinstance(apart, str)
    for device in DEVICES:
        assert isinstance(apart[device], MemoryPeak)
        assert 32 * MIB <= apart[device].predicted_bytes < 33 * MIB
        assert 32 * MIB <= (apart[device].measured_bytes or 0) < 40 * MIB


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All children are forked of a process that has it not."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setattr(child, "_server", None)
    begin_to_fork()
    yield
    assert child._server is not None
    child._server.end()


@pytest.mark.parametrize("fixture", ["tmp_path", "without_onednn"], ids=["with", "without"])
def test_a_peak_is_predicted_as_ops_ask_for_it(
    tmp_path: Path, request: pytest.FixtureRequest, fixture: str
) -> None:
    """Workspaces of convolutions, copies of a table that is read by rows, and chunks."""
    request.getfixturevalue(fixture)
    _write(tmp_path / "model.pb", _convolutions)
    assert 0.95 < _share_of_measured(tmp_path / "model.pb") < 1.05


def test_variables_that_are_updated_while_they_are_read_are_held_twice(tmp_path: Path) -> None:
    """A weight's gradient and update come before the gradient of what is multiplied with it."""
    _write(tmp_path / "model.pb", _wide_layers)
    assert 0.95 < _share_of_measured(tmp_path / "model.pb") < 1.05
    prepared = _prepared(tmp_path / "model.pb")
    (without,) = SimulatingEvaluator(prepared.problem).evaluate(prepared.given[None])[0].peak_bytes
    assert predicted_peaks(prepared, prepared.given)[0] > without + 3 * MIB


def test_what_is_added_to_a_late_sum_waits_in_the_loop(tmp_path: Path) -> None:
    """10 of 16 products of 1 MiB: the loop begins before that is there to which they are added."""
    _write(tmp_path / "model.pb", _late_sum)
    prepared = _prepared(tmp_path / "model.pb")
    assert predicted_peaks(prepared, prepared.given)[0] > 12 * MIB
    assert 0.9 < _share_of_measured(tmp_path / "model.pb") < 1.1


def test_small_tensors_are_counted_too(tmp_path: Path) -> None:
    """OneDNN's allocator would neither count nor limit what takes less than 256 KiB."""
    _write(tmp_path / "model.pb", _many_small)
    assert 0.9 < _share_of_measured(tmp_path / "model.pb") < 1.1


def _many_small() -> tf.Tensor:
    """Forty tensors of 64 KiB are kept for the gradient."""
    x = v1.placeholder(tf.float32, [16, 1024], name="x")
    weight = v1.get_variable("weight", [], initializer=v1.ones_initializer(), use_resource=True)
    for _ in range(40):
        x = tf.tanh(x * weight)
    loss = tf.reduce_mean(x)
    v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")
    return loss


def _late_sum() -> tf.Tensor:
    a = v1.placeholder(tf.float32, [512, 512], name="a")
    rows = v1.placeholder(tf.float32, [8, 512], name="rows")
    total = a @ a @ a @ a
    for_all = tf.while_loop(
        lambda i, total: i < 16,
        lambda i, total: (
            i + 1,
            total + tf.matmul(rows * tf.cast(i, tf.float32), rows, transpose_a=True),
        ),
        [tf.constant(0), total],
        parallel_iterations=10,
    )
    loss = tf.reduce_sum(for_all[1])
    weight = v1.get_variable("weight", [], initializer=v1.ones_initializer(), use_resource=True)
    tf.group(weight.assign_sub(loss, read_value=False), name="train_op")
    return loss


def _convolutions() -> tf.Tensor:
    images = v1.placeholder(tf.float32, [8, 32, 32, 16], name="images")
    ids = v1.placeholder(tf.int32, [8], name="ids")
    ones = v1.ones_initializer()
    kernel = v1.get_variable("kernel", [3, 3, 16, 16], initializer=ones, use_resource=True)
    table = v1.get_variable("table", [4000, 512], initializer=ones, use_resource=True)
    rows = tf.nn.embedding_lookup(table, ids)
    scale = tf.reduce_mean(tf.matmul(rows, table, transpose_b=True))
    maps = tf.nn.relu(tf.nn.conv2d(images * scale, kernel, 1, "SAME"))
    pooled = tf.nn.max_pool2d(tf.nn.conv2d(maps, kernel, 1, "SAME"), 2, 2, "VALID")
    loss = tf.reduce_mean(pooled)
    v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")
    return loss


def _wide_layers() -> tf.Tensor:
    """Nothing but these variables is there from the start on, so that the order is known."""
    x, all_weights = v1.placeholder(tf.float32, [8, 1024], name="x"), []
    for layer in range(3):
        weights = v1.get_variable(
            f"weights{layer}", [1024, 1024], initializer=v1.ones_initializer(), use_resource=True
        )
        all_weights.append(weights)
        x = tf.tanh(x @ weights)
    loss = tf.reduce_mean(x)
    gradients = tf.gradients(loss, all_weights)
    updates = [
        tf.raw_ops.AssignSubVariableOp(resource=weights.handle, value=gradient)
        for weights, gradient in zip(all_weights, gradients, strict=True)
    ]
    tf.group(updates, name="train_op")
    return loss


def _write(path: Path, loss_of: Callable[[], tf.Tensor]) -> None:
    """A training step of this loss, as a GraphDef."""
    with tf.Graph().as_default() as graph:
        tf.identity(loss_of(), name="loss")
        v1.global_variables_initializer()
    path.write_bytes(graph.as_graph_def().SerializeToString())


def _prepared(model: Path) -> PreparedModel:
    load = LoadOptions(fetch=("loss", "train_op"))
    options = ProblemOptions(model=str(model), cluster="workers:1", load=load)
    return prepare(options, trace=False)


def _share_of_measured(model: Path) -> float:
    """The predicted peak over the measured one, on a worker."""
    prepared = _prepared(model)
    found = compare_memory(prepared, {"given": prepared.given}, StepLimits())["given"]
    assert not isinstance(found, str)
    (peak,) = found.values()
    assert peak.measured_bytes is not None and peak.allocator_bytes is not None
    assert peak.allocator_bytes >= peak.measured_bytes
    return peak.predicted_bytes / peak.measured_bytes
