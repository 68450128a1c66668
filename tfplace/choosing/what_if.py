"""What plain data parallelism over the same devices would take: an estimate to advise by.

Each of R replicas runs the whole step on one device with 1/R of the batch, then gradients are
summed over a ring:

    seconds(R) = single (1 - p + p / R) + 2 (R - 1) latency + 2 (R - 1) / R bytes / rate,

where p is the share of the single device's step in ops whose work grows with the batch, taken to
be proportional to it, and latency and rate are the slowest link's. A ring's cost is Patarasuk and
Yuan's (2009). Nothing overlaps here, which is pessimistic; kernels lose nothing on a smaller
batch, which is optimistic.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.grouping.quotient import BoolArray
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.simulated import simulated

# Op types that read or write a variable: what they return or take has no batch in it.
_READS = frozenset("ReadVariableOp VarHandleOp VariableV2 Variable".split())
_UPDATE_PARTS = ("Apply", "AssignSub", "AssignAdd", "Scatter")


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """An estimate of plain data parallelism.

    Attributes:
      num_replicas: R, one for each working device.
      batch_size: of all replicas together, as it is now.
      step_seconds: compute_seconds + all_reduce_seconds.
      compute_seconds: what a replica computes.
      all_reduce_seconds: what the ring takes to sum the gradients.
      gradient_bytes: how much is summed.
      batch_share: p of the module's formula.
      bytes_per_replica: a replica's peak memory.
      fits: whether that is within every working device's usable memory.
    """

    num_replicas: int
    batch_size: int
    step_seconds: float
    compute_seconds: float
    all_reduce_seconds: float
    gradient_bytes: int
    batch_share: float
    bytes_per_replica: int
    fits: bool


def data_parallel_of(prepared: PreparedModel) -> DataParallel | None:
    """The estimate for a training step that is fed a batch; None for anything else."""
    batch_size = batch_size_of([np.shape(array) for array in prepared.feeds.values()])
    if prepared.source.mode != "train" or batch_size < 2:
        return None
    return data_parallel(prepared.problem, batch_size, prepared.source.trainable_bytes)


def data_parallel(
    problem: Problem, batch_size: int, most_gradient_bytes: int
) -> DataParallel | None:
    """Estimates data parallelism over the working devices; None where there is only one.

    Args:
      problem: a training step.
      batch_size: leading dimension of what is fed.
      most_gradient_bytes: of the variables that training changes.
    """
    devices = working_devices(problem)
    replicas = min(len(devices), batch_size)
    if replicas < 2:
        return None
    first = int(devices[0])
    everywhere = np.full(problem.num_ops, first, dtype=np.int32)
    single = simulated(problem, legal(problem, everywhere)).outcome
    if not math.isfinite(single.step_seconds):
        return None
    seconds = problem.op_seconds[:, first]
    seconds = np.where(np.isfinite(seconds), seconds, problem.op_seconds.min(axis=1))
    grows = grows_with_batch(problem.graph, batch_size)
    share = float(seconds[grows].sum() / max(seconds.sum(), 1e-300))
    gradients = min(gradient_bytes(problem.graph), most_gradient_bytes)
    apart = np.ix_(devices, devices)
    off_diagonal = ~np.eye(len(devices), dtype=bool)
    rate = float(problem.link_bytes_per_second[apart][off_diagonal].min())
    latency = float(problem.link_latency[apart][off_diagonal].max())
    compute = single.step_seconds * (1.0 - share + share / replicas)
    reduce = 2 * (replicas - 1) * (latency + gradients / replicas / rate)
    # Variables are in every replica; what else is held shrinks with the batch.
    persistent = int(problem.graph.op_persistent_bytes.sum())
    held = persistent + (single.peak_bytes[first] - persistent) / replicas
    return DataParallel(
        num_replicas=replicas,
        batch_size=batch_size,
        step_seconds=compute + reduce,
        compute_seconds=compute,
        all_reduce_seconds=reduce,
        gradient_bytes=gradients,
        batch_share=share,
        bytes_per_replica=int(held),
        fits=bool(held <= problem.usable_bytes()[devices].min()),
    )


def batch_size_of(shapes: Sequence[tuple[int, ...]]) -> int:
    """The leading dimension that most fed arrays have (the larger of equals); 0 without any."""
    leading = [shape[0] for shape in shapes if len(shape) > 0]
    return max(leading, key=lambda size: (leading.count(size), size), default=0)


def grows_with_batch(graph: OpGraph, batch_size: int) -> BoolArray:
    """bool[N]: ops that take or make a tensor with the batch in it.

    A tensor counts if one of its first four dimensions is a multiple of the batch size and its
    shape is not a variable's: gradients, and what optimizers make of them, have variables' shapes.
    """
    types = np.array(graph.op_types)
    shapes = graph.tensor_shape
    is_read = np.isin(types, list(_READS))[graph.tensor_producer]
    known = {tuple(shape) for shape in shapes[is_read].tolist()}
    is_variable = np.array([tuple(shape) in known for shape in shapes.tolist()], dtype=bool)
    multiple = (shapes > 0) & (shapes % max(batch_size, 1) == 0)
    has_batch = multiple.any(axis=1) & ~is_variable & (graph.tensor_output >= 0)
    grows = np.zeros(graph.num_ops, dtype=bool)
    grows[graph.tensor_producer[has_batch]] = True
    grows[graph.use_op[has_batch[graph.use_tensor]]] = True
    return grows


def gradient_bytes(graph: OpGraph) -> int:
    """What updates of variables take: each update op's largest input."""
    updates = np.array(
        [any(part in kind for part in _UPDATE_PARTS) for kind in graph.op_types], dtype=bool
    )
    largest = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(largest, graph.use_op, graph.tensor_bytes[graph.use_tensor])
    return int(largest[updates].sum())
