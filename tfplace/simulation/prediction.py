"""What a person, or a program that uses the API, reads of one simulated placement."""

import dataclasses
import time
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from graphs.protos import JsonObject
from tfplace.simulation.simulated import Simulated
from tfplace.simulation.simulator import Simulator


@dataclasses.dataclass(frozen=True)
class Best:
    """What there is to say of a placement that can run, as of the one that was written.

    Attributes:
      step_seconds: predicted.
      peak_bytes: {device: the most bytes that it holds at once}.
      ops_per_device: {device: how many ops lie on it}.
      busy_share: {device: share of the step in which it computes}.
      transfers: how many tensors a step moves between devices.
      transfer_bytes: how many bytes these are.
    """

    step_seconds: float
    peak_bytes: Mapping[str, int]
    ops_per_device: Mapping[str, int]
    busy_share: Mapping[str, float]
    transfers: int
    transfer_bytes: int

    @classmethod
    def of(cls, placed: Simulated) -> "Best":
        """The same of a placement that was simulated; inf seconds where it can't run."""
        return cls(
            step_seconds=placed.outcome.step_seconds,
            peak_bytes=placed.peak_bytes,
            ops_per_device=placed.ops_per_device,
            busy_share=placed.busy_share,
            transfers=placed.num_transfers,
            transfer_bytes=placed.transfer_bytes,
        )


@dataclasses.dataclass(frozen=True)
class Prediction(Best):
    """What the simulator says of a placement.

    Attributes:
      step_seconds: the makespan; None where it can't run at all.
      feasible: whether it keeps to memory, kernels, pins and colocation.
      obstacle: what it doesn't keep to: "memory", "no_kernel", "pin" or "colocation", else empty.
      reason: why it doesn't, as one sentence, else empty.
      memory_bytes: {device: all of its memory}.
      communication: the channel rule; a predicted time means nothing without it.
      order: the order edges that were added, as report.json has them; None for none.
    """

    step_seconds: float | None  # type: ignore[assignment]
    feasible: bool
    obstacle: str
    reason: str
    memory_bytes: Mapping[str, int]
    communication: str
    order: JsonObject | None = None


def prediction_of(placed: Simulated) -> Prediction:
    """What was simulated, by the devices' names."""
    names = placed.problem.device_names
    known = vars(Best.of(placed))
    if not np.isfinite(placed.outcome.step_seconds):
        known = {**known, "step_seconds": None}
    return Prediction(
        **known,
        feasible=placed.is_feasible,
        obstacle=placed.obstacle,
        reason=placed.reason,
        memory_bytes=dict(zip(names, placed.problem.device_memory_bytes.tolist(), strict=True)),
        communication=placed.problem.communication,
    )


def placements_per_second(problem: Problem, device_of_op: IntArray, repeat: int) -> float:
    """How fast a placement i4[N] is simulated, `repeat` times on all cores, compiling aside."""
    simulator = Simulator(problem)
    simulator.run(device_of_op)
    began = time.perf_counter()
    simulator.run_many(np.repeat(device_of_op[None], repeat, axis=0))
    return repeat / (time.perf_counter() - began)
