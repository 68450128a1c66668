"""Recorded steps, as TensorFlow writes them for worker processes and for GPUs."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework.step_stats_pb2 import StepStats

from tests.tfplace.measurement.measure_graphs import INPUT, cluster_of
from tfplace.measurement.step_stats import parse_step_stats
from tfplace.measurement.trace import trace_run
from tfplace.measurement.training_run import TrainingRun, exactly

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

# One GPU. The host's rows have nanoseconds, the GPU tracer's microseconds: a product of two
# kernels, an op without any, a Concat that only copies within the GPU, the copy of a feed, a
# kernel of the runtime's own; streams, waits and host rows that repeat what the others say.
_ONE_GPU = """
dev_stats {
  device: "/job:localhost/replica:0/task:0/device:GPU:0"
  node_stats { node_name: "_SOURCE" all_start_nanos: 90000 }
  node_stats { node_name: "mm" timeline_label: "[gpu 64B] mm = MatMul(a, b)"
               all_start_nanos: 100000 op_end_rel_nanos: 30000
               output { tensor_description { allocation_description { requested_bytes: 64 } } } }
  node_stats { node_name: "id" timeline_label: "id = Identity(mm)" all_start_nanos: 140000
               op_end_rel_nanos: 5000 }
  node_stats { node_name: "cat" timeline_label: "cat = ConcatV2(a, b)" all_start_nanos: 150000
               op_end_rel_nanos: 8000 }
}
dev_stats {
  device: "/job:localhost/replica:0/task:0/device:CPU:0"
  node_stats { node_name: "a" timeline_label: "a = Const()" all_start_nanos: 95000
               op_end_rel_nanos: 1000 }
}
dev_stats {
  device: "/device:GPU:0/stream:16"
  node_stats { node_name: "mm:MatMul" all_start_micros: 600 op_end_rel_micros: 200 }
  node_stats { node_name: "mm:MatMul" all_start_micros: 900 op_end_rel_micros: 100 }
}
dev_stats {
  device: "/device:GPU:0/stream:all"
  node_stats { node_name: "mm:MatMul" timeline_label: "sgemm regs:1" all_start_micros: 600
               op_end_rel_micros: 200 all_end_rel_micros: 200 }
  node_stats { node_name: "mm:MatMul" timeline_label: "bias regs:1" all_start_micros: 900
               op_end_rel_micros: 100 all_end_rel_micros: 100 }
  node_stats { node_name: "redzone_checker" timeline_label: "redzone_checker regs:1"
               all_start_micros: 1000 op_end_rel_micros: 7 all_end_rel_micros: 7 }
}
dev_stats {
  device: "/device:GPU:0/stream:14<MemcpyH2D>"
  node_stats { node_name: "edge_3_a:_HostSend" all_start_micros: 300 op_end_rel_micros: 50 }
}
dev_stats {
  device: "/device:GPU:0/memcpy"
  node_stats { node_name: "edge_3_a:_HostSend" timeline_label: "MemcpyH2D bytes:64"
               all_start_micros: 300 op_end_rel_micros: 50 }
  node_stats { node_name: "cat:ConcatV2" timeline_label: "MemcpyD2D bytes:64"
               all_start_micros: 400 op_end_rel_micros: 20 }
}
dev_stats {
  device: "/device:GPU:0/sync"
  node_stats { node_name: "cuStreamSynchronize" all_start_micros: 100 op_end_rel_micros: 900 }
}
dev_stats {
  device: "/host:CPU"
  node_stats { node_name: "mm" all_start_micros: 100 op_end_rel_micros: 30 }
}
"""

# One GPU split into two logical ones: the tracer knows the physical GPU 0 only.
_SPLIT_GPU = """
dev_stats {
  device: "/job:localhost/replica:0/task:0/device:GPU:0"
  node_stats { node_name: "left" timeline_label: "left = MatMul(a, b)" all_start_nanos: 1000000
               op_end_rel_nanos: 30000 }
}
dev_stats {
  device: "/job:localhost/replica:0/task:0/device:GPU:1"
  node_stats { node_name: "right" timeline_label: "right = MatMul(a, b)" all_start_nanos: 1000000
               op_end_rel_nanos: 30000 }
}
dev_stats {
  device: "/device:GPU:0/stream:all"
  node_stats { node_name: "left:MatMul" all_start_micros: 1100 op_end_rel_micros: 20 }
  node_stats { node_name: "right:MatMul" all_start_micros: 1120 op_end_rel_micros: 40 }
}
"""

# Two ops of a loop that goes round twice: the first launches two kernels each time.
_LOOP = """
dev_stats {
  device: "/job:localhost/replica:0/task:0/device:GPU:0"
  node_stats { node_name: "mm" timeline_label: "mm = MatMul(a, b)" all_start_nanos: 1000000
               op_end_rel_nanos: 9000 }
  node_stats { node_name: "tanh" timeline_label: "tanh = Tanh(mm)" all_start_nanos: 1010000
               op_end_rel_nanos: 9000 }
  node_stats { node_name: "mm" timeline_label: "mm = MatMul(a, b)" all_start_nanos: 1020000
               op_end_rel_nanos: 9000 }
  node_stats { node_name: "tanh" timeline_label: "tanh = Tanh(mm)" all_start_nanos: 1030000
               op_end_rel_nanos: 9000 }
}
dev_stats {
  device: "/device:GPU:0/stream:all"
  node_stats { node_name: "mm:MatMul" all_start_micros: 1100 op_end_rel_micros: 20 }
  node_stats { node_name: "mm:MatMul" all_start_micros: 1120 op_end_rel_micros: 5 }
  node_stats { node_name: "tanh:Tanh" all_start_micros: 1125 op_end_rel_micros: 3 }
  node_stats { node_name: "mm:MatMul" all_start_micros: 1130 op_end_rel_micros: 21 }
  node_stats { node_name: "mm:MatMul" all_start_micros: 1151 op_end_rel_micros: 5 }
  node_stats { node_name: "tanh:Tanh" all_start_micros: 1156 op_end_rel_micros: 4 }
}
"""

GPUS = ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]


def _stats(text: str) -> Any:
    return text_format.Parse(text, StepStats())


def _rows(text: str, names: list[str]) -> list[tuple[str, str, str, float, bool]]:
    """(op, type, device, microseconds, whether it is a transfer)."""
    trace = parse_step_stats(_stats(text), names)
    micros = np.round(1e6 * (trace.end_seconds - trace.start_seconds), 3).tolist()
    return list(
        zip(
            trace.op_names,
            trace.op_types,
            trace.devices,
            micros,
            trace.is_transfer.tolist(),
            strict=True,
        )
    )


def test_rows_of_worker_processes() -> None:
    names = ["/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"]
    trace = parse_step_stats(_stats(_WORKERS_STATS), names)
    assert trace.op_names == ("x", "product", "edge_7_product")
    assert trace.op_types == ("Const", "_MklMatMul", "RecvTensor")
    assert trace.devices == (names[0], names[0], names[1])
    np.testing.assert_allclose(trace.start_seconds, [0, 3.5e-6, 6e-6], atol=1e-15)
    np.testing.assert_allclose(trace.end_seconds, [1e-6, 5.5e-6, 116e-6], atol=1e-15)
    np.testing.assert_array_equal(trace.is_transfer, [False, False, True])


def test_a_gpu_op_counts_once_as_what_ran_on_the_gpu() -> None:
    assert _rows(_ONE_GPU, GPUS) == [
        ("a", "Const", "/device:CPU:0", 1.0, False),
        ("id", "Identity", "/device:GPU:0", 5.0, False),
        ("edge_3_a", "MEMCPY", "/device:GPU:0", 50.0, True),
        ("cat", "ConcatV2", "/device:GPU:0", 20.0, False),
        ("mm", "MatMul", "/device:GPU:0", 300.0, False),
        ("redzone_checker", "", "/device:GPU:0", 7.0, False),
    ]


def test_a_kernel_belongs_to_the_logical_gpu_that_launched_it() -> None:
    assert _rows(_SPLIT_GPU, GPUS) == [
        ("left", "MatMul", "/device:GPU:0", 20.0, False),
        ("right", "MatMul", "/device:GPU:1", 40.0, False),
    ]


def test_kernels_of_a_loop_stay_where_they_were() -> None:
    """Else the first op would seem to run for 51 us on end, with the other inside of it."""
    assert [(op, micros) for op, _, _, micros, _ in _rows(_LOOP, GPUS)] == [
        ("mm", 20.0),
        ("mm", 5.0),
        ("tanh", 3.0),
        ("mm", 21.0),
        ("mm", 5.0),
        ("tanh", 4.0),
    ]
    starts = parse_step_stats(_stats(_LOOP), GPUS).start_seconds
    np.testing.assert_allclose(1e6 * starts, [0, 20, 25, 30, 51, 56], atol=1e-6)


def test_an_empty_trace() -> None:
    trace = parse_step_stats(StepStats(), [])
    assert (trace.op_names, trace.start_seconds.shape) == ((), (0,))


def test_a_step_that_an_h200_ran() -> None:
    """A CIFAR-10 step of `tfplace graph`, recorded by TensorFlow 2.21: 90 kernels of 65 ops."""
    path = Path(__file__).parent / "recorded" / "cifar10_h200.pb.gz"
    recorded = StepStats.FromString(gzip.decompress(path.read_bytes()))
    trace = parse_step_stats(recorded, GPUS)
    micros = np.round(1e6 * (trace.end_seconds - trace.start_seconds), 3).tolist()
    columns = (trace.op_names, trace.devices, micros, trace.is_transfer)
    rows = list(zip(*columns, strict=True))
    on_gpu = {op: us for op, device, us, moves in rows if device == GPUS[1] and not moves}
    assert on_gpu["norm"] == 33.0
    assert on_gpu["gradients/norm_grad/LRNGrad"] == 88.0
    moved = {op for op, _, _, moves in rows if moves}
    assert moved == {"_arg_images_0_0/_0", "_arg_labels_0_1/_7"}
    kernels = {
        node.node_name.partition(":")[0]: 0.0
        for device in recorded.dev_stats
        if device.device.endswith("/stream:all")
        for node in device.node_stats
    }
    assert len(kernels) == 65
    assert round(sum(on_gpu[op] for op in kernels)) == 592


@pytest.mark.gpu
@pytest.mark.skipif(
    not tf.config.list_physical_devices("GPU"), reason="TensorFlow sees no GPU on this machine"
)
def test_a_real_gpu_tells_its_kernels() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 2], name="x")
        with tf.device("/device:GPU:0"):
            tf.matmul(x, x, name="product")
    run = TrainingRun({"x:0": INPUT}, ["product:0"])
    traces = trace_run(graph.as_graph_def(), run, cluster_of(GPUS[:2]), exactly(2, warmup_steps=1))
    assert isinstance(traces, list)
    rows = dict(zip(traces[-1].op_names, traces[-1].devices, strict=True))
    assert rows["product"] == "/device:GPU:0"
