"""The memory limit of a device, predicted and real."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from graphs.loading.load_options import LoadOptions
from graphs.problem import Infeasible, Measurement
from tfplace.choosing.real_runs.compare import MemoryPeak, compare_memory
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


def test_a_peak_is_predicted_as_ops_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workspaces of convolutions, copies of a table that is read by rows, and chunks."""
    monkeypatch.setenv(
        "TF_ENABLE_ONEDNN_OPTS", "0"
    )  # its workspaces are others, where a CPU has it
    with tf.Graph().as_default() as graph:
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
        tf.identity(loss, name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")
        v1.global_variables_initializer()
    model = tmp_path / "model.pb"
    model.write_bytes(graph.as_graph_def().SerializeToString())
    load = LoadOptions(fetch=("loss", "train_op"))
    options = ProblemOptions(model=str(model), cluster="workers:1", load=load)
    prepared = prepare(options, trace=False)
    found = compare_memory(prepared, {"given": prepared.given}, StepLimits())["given"]
    assert not isinstance(found, str)
    (peak,) = found.values()
    assert peak.measured_bytes is not None and peak.allocator_bytes is not None
    assert 0.95 < peak.predicted_bytes / peak.measured_bytes < 1.05
    assert peak.allocator_bytes >= peak.measured_bytes
