"""How TensorFlow's executor runs ops of CPUs: depth-first, and transfers are work of its thread.

What SPEC section 6 leaves out and calibration measures (`Cluster.transfer_work`). A problem that
has it is simulated by rules 7 to 9, which BUILD_NOTES states and tests/reference_simulator.py has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.cluster import Cluster
from graphs.op_graph import FloatArray

INLINE_OPS = frozenset(
    "Const Identity IdentityN Reshape Shape ShapeN Rank Size NoOp VarHandleOp ReadVariableOp "
    "ExpandDims Squeeze StopGradient PreventGradient Switch Merge Enter Exit NextIteration "
    "LoopCond _Arg _Retval Placeholder VariableV2 Variable BroadcastGradientArgs ZerosLike".split()
)
"""Op types whose CPU kernels say that they are cheap (`OpKernel::IsExpensive` is false): the
executor runs them at once instead of queueing them. Its other kernels count as expensive for about
90 steps, whatever they take: the estimate starts at 1e8 cycles and falls by a tenth a run."""


@dataclasses.dataclass(frozen=True)
class Executor:
    """What a depth-first executor needs to know.

    Attributes:
      send_seconds: f8[D, D, 2] what a transfer takes of its sender: fixed, and per byte.
      receive_seconds: f8[D, D, 2] what it takes of its receiver. Both are part of what the link's
        latency and bandwidth say.
      runs_inline: bool[N] ops that go before the others that became ready with them.
    """

    send_seconds: FloatArray
    receive_seconds: FloatArray
    runs_inline: npt.NDArray[np.bool_]


def executor_of(cluster: Cluster, op_types: Sequence[str]) -> Executor | None:
    """The executor of a calibrated cluster; None where transfers take nothing of the devices."""
    work = cluster.transfer_work
    if work is None:
        return None
    return Executor(
        np.stack([work.sender_seconds, work.sender_seconds_per_byte], axis=-1),
        np.stack([work.receiver_seconds, work.receiver_seconds_per_byte], axis=-1),
        np.array([kind in INLINE_OPS for kind in op_types], dtype=bool),
    )


def wire(
    executor: Executor, latency: FloatArray, bytes_per_second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Latency and bytes per second, f8[D, D] each, less what the two ends work for a transfer.

    latency' = max(latency - send - receive, 0)
    1 / rate' = max(1 / rate - send per byte - receive per byte, 0)
    """
    both = executor.send_seconds + executor.receive_seconds
    per_byte = np.maximum(1.0 / bytes_per_second - both[..., 1], 0.0)
    with np.errstate(divide="ignore"):
        return np.maximum(latency - both[..., 0], 0.0), 1.0 / per_byte
