from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from graphs.problem import Infeasible
from tests.tfplace.measurement.measure_graphs import (
    INPUT,
    LOGICAL_CPUS,
    WORKERS,
    cluster_of,
    loop,
    towers,
    towers_run,
)
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.trace import DeviceUse, devices_used, trace_run, trace_saved_model
from tfplace.measurement.training_run import TrainingRun, exactly

BRIEF = exactly(2, warmup_steps=1)
TOWER_OPS = [f"{op}{tower}" for tower in range(2) for op in ("v", "product", "sum")]


def _trace(rows: Sequence[tuple[str, str, float]], transfers: Sequence[str] = ()) -> StepTrace:
    """Rows of (op, device, seconds), all from 0 on."""
    return StepTrace(
        tuple(op for op, _, _ in rows),
        ("",) * len(rows),
        tuple(device for _, device, _ in rows),
        np.zeros(len(rows)),
        np.array([seconds for _, _, seconds in rows]),
        np.array([op in transfers for op, _, _ in rows]),
    )


TRACES = [
    _trace([("a", "cpu", 1.0), ("a", "cpu", 1.0), ("b", "gpu", 5.0), ("t", "gpu", 9.0)], "t"),
    _trace([("a", "cpu", 4.0), ("b", "gpu", 7.0)]),
    _trace([("a", "cpu", 3.0), ("c", "gpu", 1.0)]),
]


def test_devices_used() -> None:
    assert devices_used(TRACES) == {"cpu": DeviceUse(1, 3.0), "gpu": DeviceUse(2, 5.0)}


def _device_of_op(traces: list[StepTrace] | Infeasible) -> dict[str, set[str]]:
    assert isinstance(traces, list), traces
    ran: dict[str, set[str]] = {}
    for trace in traces:
        for op, device in zip(trace.op_names, trace.devices, strict=True):
            ran.setdefault(op, set()).add(device)
    return ran


def test_a_placed_graph_runs_where_it_says_on_worker_processes() -> None:
    traces = trace_run(towers(WORKERS), towers_run(), cluster_of(WORKERS), BRIEF)
    ran = _device_of_op(traces)
    assert {op: ran[op] for op in TOWER_OPS} == {op: {WORKERS[int(op[-1])]} for op in TOWER_OPS}
    assert isinstance(traces, list) and len(traces) == 2
    assert any(trace.is_transfer.any() for trace in traces)


def test_a_loops_body_runs_where_the_loop_is() -> None:
    graph = loop(LOGICAL_CPUS[1], iterations=3)
    run = TrainingRun({"x:0": INPUT}, ["result:0"])
    traces = trace_run(graph, run, cluster_of(LOGICAL_CPUS), BRIEF)
    ran = _device_of_op(traces)
    counting = "loop/body/_1/add_0"  # Grappler gives the doubling another name
    assert ran[counting] == {LOGICAL_CPUS[1]}
    assert isinstance(traces, list)
    assert traces[0].op_names.count(counting) == 3


def test_a_saved_model_that_is_loaded_again_runs_where_it_says(tmp_path: Path) -> None:
    class Towers(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.variable = tf.Variable([[1.0, 0.0], [0.0, 2.0]])

        @tf.function(input_signature=[tf.TensorSpec([2, 2], name="x")])
        def train_step(self, x: tf.Tensor) -> tf.Tensor:
            with tf.device(LOGICAL_CPUS[1]):
                product = tf.matmul(x, self.variable, name="product")
            with tf.device(LOGICAL_CPUS[0]):
                return tf.reduce_sum(product, name="total")

    path = str(tmp_path / "model")
    module = Towers()
    tf.saved_model.save(module, path, {"train_step": module.train_step})
    ends = {"train_step_x:0": INPUT}, ["StatefulPartitionedCall:0"]
    traces = trace_saved_model(path, ["serve"], ends, cluster_of(LOGICAL_CPUS), BRIEF)
    ran = _device_of_op(traces)
    by_name = {op.rpartition("/")[2]: devices for op, devices in ran.items()}
    assert by_name["product"] == {LOGICAL_CPUS[1]}
    assert by_name["total"] == {LOGICAL_CPUS[0]}


def test_a_graph_that_can_not_run_is_a_value() -> None:
    traces = trace_run(towers(["/device:GPU:5"] * 2), towers_run(), cluster_of(LOGICAL_CPUS), BRIEF)
    assert isinstance(traces, Infeasible)
    assert traces.reason == "no_kernel"
