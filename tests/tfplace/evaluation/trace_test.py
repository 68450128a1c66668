import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework.step_stats_pb2 import StepStats

from graphs.placement import Infeasible
from tests.tfplace.evaluation.measure_graphs import (
    INPUT,
    LOGICAL_CPUS,
    WORKERS,
    cluster_of,
    loop,
    towers,
    towers_run,
)
from tfplace.evaluation.trace import (
    DeviceUse,
    StepTrace,
    TraceConfig,
    coverage,
    devices_used,
    median_op_seconds,
    never_seen,
    parse_step_stats,
    trace_run,
)
from tfplace.evaluation.training_run import SavedModelRun, TrainingRun

BRIEF = TraceConfig(num_traces=2, warmup_steps=1, num_logical_cpus=2)
TOWER_OPS = [f"{op}{tower}" for tower in range(2) for op in ("v", "product", "sum")]

_WORKERS_STATS = """
dev_stats {
  device: "/job:worker/replica:0/task:0/device:CPU:0"
  node_stats { node_name: "_SOURCE" timeline_label: "_SOURCE = NoOp()" all_start_nanos: 1000 }
  node_stats {
    node_name: "product" timeline_label: "[cpu 8B] product = _MklMatMul(x, v)"
    all_start_nanos: 5000 op_start_rel_nanos: 500 op_end_rel_nanos: 2500 all_end_rel_nanos: 2600
    output { tensor_description { allocation_description { requested_bytes: 16 } } }
  }
  node_stats {
    node_name: "x" timeline_label: "x = Const()"
    all_start_nanos: 2000 op_start_rel_nanos: 0 op_end_rel_nanos: 1000
  }
}
dev_stats {
  device: "/job:worker/replica:0/task:1/device:CPU:0"
  node_stats {
    node_name: "RecvTensor"
    timeline_label: "[16B] [0.2Mb/s] edge_7_product from /job:worker/replica:0/task:0/device:CPU:0"
    all_start_micros: 8 all_end_rel_micros: 110 op_end_rel_micros: 110
  }
}
"""

_GPU_STATS = """
dev_stats {
  device: "/job:localhost/replica:0/task:0/device:GPU:0"
  node_stats { node_name: "mm" timeline_label: "mm = MatMul(a, b)" all_start_nanos: 100
               op_end_rel_nanos: 30 }
  node_stats { node_name: "id" timeline_label: "id = Identity(mm)" all_start_nanos: 140
               op_end_rel_nanos: 5 }
}
dev_stats {
  device: "/device:GPU:0/stream:all"
  node_stats { node_name: "mm:MatMul" all_start_nanos: 600 op_end_rel_nanos: 200 }
  node_stats { node_name: "mm:MatMul" all_start_nanos: 900 op_end_rel_nanos: 100 }
}
dev_stats {
  device: "/device:GPU:0/stream:7(Compute)"
  node_stats { node_name: "mm:MatMul" all_start_nanos: 600 op_end_rel_nanos: 200 }
}
dev_stats {
  device: "/device:GPU:0/memcpy"
  node_stats { node_name: "edge_3_a" all_start_nanos: 300 op_end_rel_nanos: 50 }
}
"""


def _stats(text: str) -> Any:
    return text_format.Parse(text, StepStats())


def test_rows_of_worker_processes() -> None:
    names = ["/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"]
    trace = parse_step_stats(_stats(_WORKERS_STATS), names)
    assert trace.op_names == ("x", "product", "edge_7_product")
    assert trace.op_types == ("Const", "_MklMatMul", "RecvTensor")
    assert trace.devices == (names[0], names[0], names[1])
    np.testing.assert_allclose(trace.start_seconds, [0, 3.5e-6, 6e-6], atol=1e-15)
    np.testing.assert_allclose(trace.end_seconds, [1e-6, 5.5e-6, 116e-6], atol=1e-15)
    np.testing.assert_array_equal(trace.output_bytes, [0, 16, 0])
    np.testing.assert_array_equal(trace.is_transfer, [False, False, True])


def test_a_gpu_ops_kernels_count_once_and_its_launch_does_not() -> None:
    trace = parse_step_stats(_stats(_GPU_STATS), ["/device:GPU:0"])
    assert trace.op_names == ("id", "edge_3_a", "mm")
    assert set(trace.devices) == {"/device:GPU:0"}
    np.testing.assert_allclose(
        trace.end_seconds - trace.start_seconds, [5e-9, 50e-9, 300e-9], atol=1e-15
    )
    np.testing.assert_array_equal(trace.is_transfer, [False, True, False])


def test_an_empty_trace() -> None:
    trace = parse_step_stats(StepStats(), [])
    assert (trace.op_names, trace.start_seconds.shape) == ((), (0,))


def _trace(rows: Sequence[tuple[str, str, float]], transfers: Sequence[str] = ()) -> StepTrace:
    """Rows of (op, device, seconds), all from 0 on."""
    return StepTrace(
        tuple(op for op, _, _ in rows),
        ("",) * len(rows),
        tuple(device for _, device, _ in rows),
        np.zeros(len(rows)),
        np.array([seconds for _, _, seconds in rows]),
        np.zeros(len(rows), np.int64),
        np.array([op in transfers for op, _, _ in rows]),
    )


TRACES = [
    _trace([("a", "cpu", 1.0), ("a", "cpu", 1.0), ("b", "gpu", 5.0), ("t", "gpu", 9.0)], "t"),
    _trace([("a", "cpu", 4.0), ("b", "gpu", 7.0)]),
    _trace([("a", "cpu", 3.0), ("c", "gpu", 1.0)]),
]


def test_medians_add_iterations_and_leave_out_transfers() -> None:
    assert median_op_seconds(TRACES) == {"a": {"cpu": 3.0}, "b": {"gpu": 6.0}, "c": {"gpu": 1.0}}


def test_what_was_never_seen() -> None:
    assert never_seen(TRACES, ["a", "folded", "b", "t"]) == ["folded", "t"]
    assert coverage(TRACES, ["a", "folded", "b", "t"]) == 0.5
    assert coverage([], []) == 1.0


def test_devices_used() -> None:
    assert devices_used(TRACES) == {"cpu": DeviceUse(1, 3.0), "gpu": DeviceUse(2, 5.0)}
    assert devices_used(TRACES, {"b"}) == {"gpu": DeviceUse(1, 6.0)}


def _device_of_op(traces: list[StepTrace] | Infeasible) -> dict[str, set[str]]:
    assert isinstance(traces, list), traces
    return {op: set(times) for op, times in median_op_seconds(traces).items()}


def test_a_placed_graph_runs_where_it_says_on_worker_processes() -> None:
    traces = trace_run(towers(WORKERS), towers_run(), cluster_of(WORKERS), BRIEF)
    ran = _device_of_op(traces)
    assert {op: ran[op] for op in TOWER_OPS} == {op: {WORKERS[int(op[-1])]} for op in TOWER_OPS}
    assert isinstance(traces, list) and len(traces) == 2
    assert traces[0].is_transfer.any()


def test_a_loops_body_runs_where_the_loop_is() -> None:
    """Grappler makes y + y a product of another name, so only unrewritten is it seen."""
    graph = loop(LOGICAL_CPUS[1], iterations=3)
    run = TrainingRun({"x:0": INPUT}, ["result:0"])
    config = dataclasses.replace(BRIEF, rewrite=False)
    traces = trace_run(graph, run, cluster_of(LOGICAL_CPUS), config)
    ran = _device_of_op(traces)
    assert ran["loop/body/_1/double_0"] == {LOGICAL_CPUS[1]}
    assert isinstance(traces, list)
    assert traces[0].op_names.count("loop/body/_1/double_0") == 3


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
    run = SavedModelRun(path, ["serve"], {"train_step_x:0": INPUT}, ["StatefulPartitionedCall:0"])
    ran = _device_of_op(trace_run(None, run, cluster_of(LOGICAL_CPUS), BRIEF))
    by_name = {op.rpartition("/")[2]: devices for op, devices in ran.items()}
    assert by_name["product"] == {LOGICAL_CPUS[1]}
    assert by_name["total"] == {LOGICAL_CPUS[0]}


def test_a_graph_that_can_not_run_is_a_value() -> None:
    traces = trace_run(towers(["/device:GPU:5"] * 2), towers_run(), cluster_of(LOGICAL_CPUS), BRIEF)
    assert isinstance(traces, Infeasible)
    assert traces.reason == "no_kernel"
