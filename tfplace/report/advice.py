"""What else a user could do with the same devices: plain data parallelism, or one device.

Data parallelism is estimated, not simulated: each of R replicas runs the whole step on one device
with 1/R of the batch, then gradients are summed over a ring,

    seconds(R) = single (1 - p + p / R) + 2 (R - 1) latency + 2 (R - 1) / R bytes / rate,

where p is the share of the single device's step in ops whose work grows with the batch, taken to
be proportional to it, and latency and rate are the slowest link's. A ring's cost is Patarasuk and
Yuan's (2009). Nothing overlaps here, which is pessimistic; kernels lose nothing on a smaller
batch, which is optimistic.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.grouping.quotient import BoolArray
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.inspection import trainable_bytes
from tfplace.simulation.simulator import Simulator
from tfplace.units_text import bytes_text, seconds_text, share_text

# Op types that read or write a variable: what they return or take has no batch in it.
_READS = frozenset("ReadVariableOp VarHandleOp VariableV2 Variable".split())
_UPDATE_PARTS = ("Apply", "AssignSub", "AssignAdd", "Scatter")


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """An estimate of plain data parallelism.

    Attributes:
      num_replicas: R, one per working device.
      batch_size: of all replicas together, as it is now.
      step_seconds: compute_seconds + all_reduce_seconds.
      compute_seconds: of a replica.
      all_reduce_seconds: of the gradients.
      gradient_bytes: what is reduced.
      batch_share: p of the module's formula.
      bytes_per_replica: of its peak memory.
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


@dataclasses.dataclass(frozen=True)
class SingleRun:
    """All ops on one working device, as simulated: seconds, and peak bytes there."""

    step_seconds: float
    peak_bytes: int


def data_parallel(
    problem: Problem, batch_size: int, most_gradient_bytes: int, single: SingleRun
) -> DataParallel | None:
    """Estimates data parallelism over the working devices; None where there is only one.

    Args:
      problem: a training step.
      batch_size: leading dimension of what is fed.
      most_gradient_bytes: of the variables that training changes.
      single: the step on one of the working devices, whether or not it fits there.
    """
    devices = working_devices(problem)
    replicas = min(len(devices), batch_size)
    if replicas < 2 or not math.isfinite(single.step_seconds):
        return None
    seconds = problem.op_seconds[:, devices[0]]
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
    persistent = int(problem.graph.op_persistent_bytes.sum())
    held = persistent + (single.peak_bytes - persistent) / replicas
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


@dataclasses.dataclass(frozen=True)
class Advice:
    """Attributes: sentences for a person; data_parallel: the estimate, None without one."""

    sentences: Sequence[str]
    data_parallel: DataParallel | None

    def to_json(self) -> Mapping[str, Any]:
        """As report.json has it."""
        estimate = self.data_parallel
        return {
            "sentences": list(self.sentences),
            "data_parallel": None if estimate is None else dataclasses.asdict(estimate),
        }


def advice_of(
    prepared: PreparedModel,
    verdict: str,
    step_seconds: float | None,
    lower_bound_seconds: float | None,
) -> Advice:
    """Advice on a prepared model; data parallelism only for a training step with a fed batch."""
    batch_size = batch_size_of([np.shape(array) for array in prepared.feeds.values()])
    estimate = None
    if prepared.source.mode == "train" and batch_size > 1:
        problem = prepared.problem
        device = working_devices(problem)[0]
        everywhere = np.full(problem.num_ops, device, dtype=np.int32)
        makespan, peaks = Simulator(problem, num_threads=1).run(legal(problem, everywhere))
        single = SingleRun(makespan, int(peaks[device]))
        trainable = trainable_bytes(prepared.source)
        estimate = data_parallel(problem, batch_size, trainable, single)
    return advice(estimate, verdict, step_seconds or math.inf, lower_bound_seconds)


def advice(
    estimate: DataParallel | None,
    verdict: str,
    step_seconds: float,
    lower_bound_seconds: float | None,
) -> Advice:
    """Puts it into words.

    Args:
      estimate: of data parallelism; None where it makes no sense.
      verdict: the report's.
      step_seconds: predicted, of the placement that is written.
      lower_bound_seconds: of every placement; None where it is not known.
    """
    sentences = []
    if verdict == "kept_single":
        least = lower_bound_seconds or 0.0
        proof = "" if least <= 0.0 else f", and none can take less than {seconds_text(least)}"
        sentences.append(
            f"one device is best for this graph: no placement over several that was found beats "
            f"its {seconds_text(step_seconds)}{proof}"
        )
    if estimate is not None:
        sentences.append(_data_parallel_sentence(estimate, step_seconds, lower_bound_seconds))
    return Advice(sentences, estimate)


def _data_parallel_sentence(
    estimate: DataParallel, step_seconds: float, lower_bound_seconds: float | None
) -> str:
    what = f"plain data parallelism over {estimate.num_replicas} devices"
    about = f"about {seconds_text(estimate.step_seconds)} a step"
    if not estimate.fits:
        return (
            f"{what} would not fit: a replica needs {bytes_text(estimate.bytes_per_replica)}, all "
            "variables among them"
        )
    if estimate.step_seconds >= step_seconds:
        own = f"{seconds_text(step_seconds)} a step"
        return (
            f"the placement written is predicted to be faster ({own}) than {what}, which would "
            f"take {about}"
        )
    beats = "than any placement found"
    if lower_bound_seconds and estimate.step_seconds < lower_bound_seconds:
        beats = "than any placement of this graph can be"
    return (
        f"{what} would be faster {beats}: {about} at the same batch of {estimate.batch_size:,}, "
        f"{seconds_text(estimate.compute_seconds)} of compute, taking "
        f"{share_text(estimate.batch_share)} of the work to shrink in proportion to the batch, "
        f"and {seconds_text(estimate.all_reduce_seconds)} to sum "
        f"{bytes_text(estimate.gradient_bytes)} of gradients"
    )
