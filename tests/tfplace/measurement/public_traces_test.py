"""Steps that TensorFlow recorded on other people's GPUs, as public repositories hold them.

Each is a chrome timeline that TensorFlow 1 made of its step statistics. Names, order and figures
are theirs, cut to what tells something; starts are from the step's first. A timeline drops the
third part of a copy's name, "op:Type:MEMCPYDtoD"; where it is given, it is as the tracer wrote it,
GPUTracerImpl::Collect in TensorFlow's tensorflow/core/platform/default/gpu_tracer.cc. That one also
calls every GPU number 0: which one ran a kernel only the host's row tells.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework.step_stats_pb2 import StepStats

from tfplace.measurement.step_stats import parse_step_stats
from tfplace.measurement.trace import devices_used

CPU, GPU = "/device:CPU:0", "/device:GPU:0"

# https://github.com/ikhlestov/tensorflow_profiling profiles/GPU/timeline_01.json (March 2017):
# two random matrices and their product, the first step. What runs on the GPU is "/gpu:0/...", and
# the host's rows are long by cuRAND's and cuBLAS' first use.
_FIRST_STEP = """
/job:localhost/replica:0/task:0/cpu:0
  _SOURCE NoOp 12 8
/job:localhost/replica:0/task:0/gpu:0
  _SOURCE NoOp 0 595
  random_normal/shape Const 599 9
  random_normal/mean Const 608 3
  random_normal/RandomStandardNormal RandomStandardNormal 615 105521
  random_normal/mul Mul 106177 33
  MatMul MatMul 106266 115421
/gpu:0/stream:all
  random_normal/RandomStandardNormal:RandomStandardNormal 106110 370
  random_normal/mul:Mul 106677 321
  MatMul:MatMul 221668 4085
/gpu:0/stream:12
  random_normal/RandomStandardNormal:RandomStandardNormal 106110 370
  random_normal/mul:Mul 106677 321
  MatMul:MatMul 221668 4085
/gpu:0/memcpy
  MatMul:MatMul 221318 1
  edge_22_MatMul:MEMCPYDtoH 225761 1215
/gpu:0/stream:7
  MatMul:MatMul 221318 1
/gpu:0/stream:14
  edge_22_MatMul:MEMCPYDtoH 225761 1215
"""

# https://github.com/aistein/dlprof mnist_xla/TF-build/timeline_xla.ctf.json (2018): softmax
# regression on MNIST, its step compiled by XLA: kernels are named after their cluster's launch.
_CLUSTERS = """
/device:GPU:0/memcpy
  cluster_1/_4/_5:_XlaLaunch 187 2
  edge_15__arg_Placeholder_1_0_1:MEMCPYHtoD 310 1
  edge_14__arg_Placeholder_0_0:MEMCPYHtoD 421 47
  cluster_0/_2/_3:_XlaLaunch 873 1
/device:GPU:0/stream:13
  cluster_0/_2/_3:_XlaLaunch 684 5
  cluster_0/_2/_3:_XlaLaunch 697 3
  cluster_0/_2/_3:_XlaLaunch 737 27
  GradientDescent/update_Variable/ApplyGradientDescent:ApplyGradientDescent 956 4
  cluster_0/_2/_3:_XlaLaunch 873 1
/device:GPU:0/stream:all
  cluster_0/_2/_3:_XlaLaunch 684 5
  cluster_0/_2/_3:_XlaLaunch 697 3
  cluster_0/_2/_3:_XlaLaunch 737 27
  GradientDescent/update_Variable/ApplyGradientDescent:ApplyGradientDescent 956 4
/job:localhost/replica:0/task:0/device:GPU:0
  cluster_1/_4/_5 _XlaLaunch 45 281
  Variable VariableV2 342 5
  cluster_0/_2/_3 _XlaLaunch 573 320
  GradientDescent/update_Variable/ApplyGradientDescent ApplyGradientDescent 939 16
/job:localhost/replica:0/task:0/device:CPU:0
  _arg_Placeholder_1_0_1 _Arg 49 16
"""

# https://github.com/joeyearsley/mnist-xla timeline.ctf.json (September 2018): one tower of several
# on GPUs; a convolution of three kernels, copies of NCCL's that belong to no op, and a host that
# waits for data.
_TOWER = """
/device:GPU:0/stream:15
  edge_264_Mean:MEMCPYDtoH 21871 1
/device:GPU:0/stream:14
  edge_15_v0/IteratorGetNext:MEMCPYHtoD 17083 140
/job:localhost/replica:0/task:0/device:CPU:0
  v0/IteratorGetNext IteratorGetNext 58 16857
/device:GPU:0/stream:29
  unknown:MEMCPYDtoD 21915 1
  unknown:MEMCPYDtoD 21939 1
/device:GPU:0/memcpy
  edge_15_v0/IteratorGetNext:MEMCPYHtoD 17083 140
  edge_264_Mean:MEMCPYDtoH 21871 1
  unknown:MEMCPYDtoD 21915 1
  unknown:MEMCPYDtoD 21939 1
/device:GPU:0/stream:all
  v0/conv2d/Conv2D:Conv2D 17343 4
  v0/conv2d/Conv2D:Conv2D 17379 3
  v0/conv2d/Conv2D:Conv2D 17394 276
  v0/dense/MatMul:MatMul 21089 486
/job:localhost/replica:0/task:0/device:GPU:0
  v0/Reshape Reshape 17286 8
  v0/conv2d/Conv2D Conv2D 17306 99
  v0/dense/MatMul MatMul 17617 39
/device:GPU:0/stream:13
  v0/conv2d/Conv2D:Conv2D 17343 4
  v0/conv2d/Conv2D:Conv2D 17379 3
  v0/conv2d/Conv2D:Conv2D 17394 276
  v0/dense/MatMul:MatMul 21089 486
"""

# https://github.com/rogerluo1995/KittiBox timeline_01.json (July 2019): a detector's first step;
# cuDNN tries a convolution on streams of its own, and a ConcatV2 of the decoder only copies.
_DETECTOR = """
/device:GPU:0/stream:15
  edge_332_Validation/decoder/ToInt32:MEMCPYDtoH 4327646 9
/device:GPU:0/memcpy
  Validation/decoder/concat_11:ConcatV2:MEMCPYDtoD 4286806 1
  Validation/decoder/concat_11:ConcatV2:MEMCPYDtoD 4288407 1
  Validation/decoder/concat_11:ConcatV2:MEMCPYDtoD 4288425 2
  edge_332_Validation/decoder/ToInt32:MEMCPYDtoH 4327646 9
/job:localhost/replica:0/task:0/device:GPU:0
  Validation/conv1_1/Conv2D Conv2D 8409 2420805
  Validation/decoder/concat_11 ConcatV2 4280045 8497
/device:GPU:0/stream:18
  Validation/conv1_1/Conv2D:Conv2D 2333814 15
  Validation/conv1_1/Conv2D:Conv2D 2344051 113
/device:GPU:0/stream:19
  Validation/conv1_1/Conv2D:Conv2D 2344167 6
/device:GPU:0/stream:13
  Validation/conv1_1/Conv2D:Conv2D 2304932 3828
  Validation/decoder/concat_11:ConcatV2:MEMCPYDtoD 4286806 1
  Validation/decoder/concat_11:ConcatV2:MEMCPYDtoD 4288407 1
  Validation/decoder/concat_11:ConcatV2:MEMCPYDtoD 4288425 2
/device:GPU:0/stream:all
  Validation/conv1_1/Conv2D:Conv2D 2304932 3828
  Validation/conv1_1/Conv2D:Conv2D 2333814 15
  Validation/conv1_1/Conv2D:Conv2D 2344051 113
  Validation/conv1_1/Conv2D:Conv2D 2344167 6
"""

# As Collect names what two GPUs run: https://github.com/tensorflow/tensorflow/issues/10733 and
# https://github.com/tensorflow/tensorflow/issues/30734 wonder that all is on GPU 0.
_TWO_GPUS = """
/job:localhost/replica:0/task:0/device:GPU:0
  tower_0/MatMul MatMul 0 39
/job:localhost/replica:0/task:0/device:GPU:1
  tower_1/MatMul MatMul 3 35
/device:GPU:0/stream:all
  tower_0/MatMul:MatMul 20 486
  tower_1/MatMul:MatMul 31 473
"""

Row = tuple[str, str, str, float, bool]


def _stats(text: str) -> Any:
    """StepStats of lines "/device" and "  name [type] start microseconds"."""
    stats = StepStats()
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            device = stats.dev_stats.add(device=line)
            continue
        name, *kind, start, micros = line.split()
        node = device.node_stats.add(node_name=name, all_start_micros=1_490_280_130_000_000)
        node.all_start_micros += int(start)
        node.op_end_rel_micros = node.all_end_rel_micros = int(micros)
        if kind:
            node.timeline_label = f"{name} = {kind[0]}()"
    return stats


def _read(text: str, gpus: Sequence[str] = (GPU,)) -> list[Row]:
    """(op, type, device, microseconds, whether it is a transfer), by op and start."""
    trace = parse_step_stats(_stats(text), [CPU, *gpus])
    micros = np.round(1e6 * (trace.end_seconds - trace.start_seconds), 3).tolist()
    columns = trace.op_names, trace.op_types, trace.devices, micros, trace.is_transfer.tolist()
    return sorted(zip(*columns, strict=True))


def test_a_first_step_counts_kernels_instead_of_what_launched_them() -> None:
    assert _read(_FIRST_STEP) == [
        ("MatMul", "MEMCPY", GPU, 1.0, True),
        ("MatMul", "MatMul", GPU, 4085.0, False),
        ("edge_22_MatMul", "MEMCPY", GPU, 1215.0, True),
        ("random_normal/RandomStandardNormal", "RandomStandardNormal", GPU, 370.0, False),
        ("random_normal/mean", "Const", GPU, 3.0, False),
        ("random_normal/mul", "Mul", GPU, 321.0, False),
        ("random_normal/shape", "Const", GPU, 9.0, False),
    ]
    (use,) = devices_used([parse_step_stats(_stats(_FIRST_STEP), [CPU, GPU])]).values()
    assert (use.num_ops, round(1e6 * use.seconds)) == (5, 4788)


def test_kernels_of_a_compiled_cluster_are_the_launchs() -> None:
    update = "GradientDescent/update_Variable/ApplyGradientDescent"
    assert _read(_CLUSTERS) == [
        (update, "ApplyGradientDescent", GPU, 4.0, False),
        ("Variable", "VariableV2", GPU, 5.0, False),
        ("_arg_Placeholder_1_0_1", "_Arg", CPU, 16.0, False),
        ("cluster_0/_2/_3", "MEMCPY", GPU, 1.0, True),
        ("cluster_0/_2/_3", "_XlaLaunch", GPU, 35.0, False),
        ("cluster_1/_4/_5", "MEMCPY", GPU, 2.0, True),
        ("cluster_1/_4/_5", "_XlaLaunch", GPU, 281.0, False),
        ("edge_14__arg_Placeholder_0_0", "MEMCPY", GPU, 47.0, True),
        ("edge_15__arg_Placeholder_1_0_1", "MEMCPY", GPU, 1.0, True),
    ]


def test_a_copy_that_no_op_made_is_a_transfer() -> None:
    assert _read(_TOWER) == [
        ("edge_15_v0/IteratorGetNext", "MEMCPY", GPU, 140.0, True),
        ("edge_264_Mean", "MEMCPY", GPU, 1.0, True),
        ("unknown", "MEMCPY", GPU, 1.0, True),
        ("unknown", "MEMCPY", GPU, 1.0, True),
        ("v0/IteratorGetNext", "IteratorGetNext", CPU, 16857.0, False),
        ("v0/Reshape", "Reshape", GPU, 8.0, False),
        ("v0/conv2d/Conv2D", "Conv2D", GPU, 283.0, False),
        ("v0/dense/MatMul", "MatMul", GPU, 486.0, False),
    ]


def test_copies_within_the_gpu_are_their_ops_work() -> None:
    assert _read(_DETECTOR) == [
        ("Validation/conv1_1/Conv2D", "Conv2D", GPU, 3962.0, False),
        ("Validation/decoder/concat_11", "ConcatV2", GPU, 4.0, False),
        ("edge_332_Validation/decoder/ToInt32", "MEMCPY", GPU, 9.0, True),
    ]


def test_kernels_of_all_gpus_are_told_as_the_first_ones() -> None:
    assert _read(_TWO_GPUS, [GPU, "/device:GPU:1"]) == [
        ("tower_0/MatMul", "MatMul", GPU, 486.0, False),
        ("tower_1/MatMul", "MatMul", "/device:GPU:1", 473.0, False),
    ]


def test_a_kernel_of_no_op_keeps_its_whole_symbol() -> None:
    """TensorFlow 2.21 names it so (xplane_to_step_stats.cc); C++ scopes are no op and type."""
    symbol = "cutlass::Kernel<cutlass_80_tensorop_s1688gemm>(Params)"
    text = f"/device:GPU:0/stream:all\n  {symbol} 5 7\n  other::kernel 20 1"
    assert _read(text) == [(symbol, "", GPU, 7.0, False), ("other::kernel", "", GPU, 1.0, False)]
