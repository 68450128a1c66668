"""One placement with everything that the simulator says of it, simulated once."""

import dataclasses
import functools
import time
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Outcome, Problem
from graphs.protos import JsonObject
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.schedule import MemoryUse, Schedule, memory_use
from tfplace.simulation.simulator import Simulator


@dataclasses.dataclass(frozen=True)
class Simulated:
    """A placement, what it is worth and what happens when in a step of it.

    Whatever is derived from these values is computed when it is first asked for, and kept.

    Attributes:
      problem: what was simulated.
      device_of_op: i4[N] the placement.
      outcome: its step time and peaks, or why it can't run.
      schedule: when each op runs and each tensor moves; None where an op never ends. Where the
        problem's executor has several orders it is of the first one, so that its makespan may
        differ from the outcome's step time.
    """

    problem: Problem
    device_of_op: IntArray
    outcome: Outcome
    schedule: Schedule | None

    @property
    def is_feasible(self) -> bool:
        """Whether the placement keeps to memory, kernels, pins and colocation."""
        return not isinstance(self.outcome, Infeasible)

    @property
    def obstacle(self) -> str:
        """What it doesn't keep to, as Infeasible.reason has it; empty where it can run."""
        return self.outcome.reason if isinstance(self.outcome, Infeasible) else ""

    @property
    def reason(self) -> str:
        """Why the placement can't run, as one sentence; empty where it can."""
        return self.outcome.message if isinstance(self.outcome, Infeasible) else ""

    @property
    def num_transfers(self) -> int:
        """How many tensors a step moves between devices."""
        return 0 if self.schedule is None else len(self.schedule.transfers.tensor)

    @property
    def transfer_bytes(self) -> int:
        """How many bytes a step moves between devices."""
        return 0 if self.schedule is None else int(self.schedule.transfers.bytes.sum())

    @property
    def peak_bytes(self) -> dict[str, int]:
        """{device: the most bytes that it holds at once}."""
        return dict(zip(self.problem.device_names, self.outcome.peak_bytes, strict=True))

    @functools.cached_property
    def ops_per_device(self) -> Mapping[str, int]:
        """{device: how many ops lie on it}."""
        counts = np.bincount(self.device_of_op, minlength=self.problem.num_devices)
        return dict(zip(self.problem.device_names, counts.tolist(), strict=True))

    @functools.cached_property
    def busy_share(self) -> Mapping[str, float]:
        """{device: op seconds / (step seconds * slots)}; empty without a schedule."""
        if self.schedule is None:
            return {}
        work = np.bincount(
            self.device_of_op,
            weights=self.schedule.op_end - self.schedule.op_start,
            minlength=self.problem.num_devices,
        )
        full = max(self.schedule.makespan, 1e-30) * self.problem.device_slots
        return dict(zip(self.problem.device_names, (work / full).tolist(), strict=True))

    @functools.cached_property
    def memory(self) -> list[MemoryUse]:
        """[D] what each device holds over the step; a ValueError without a schedule."""
        return memory_use(self.problem, self.known_schedule())

    def known_schedule(self) -> Schedule:
        """The schedule of a placement that is known to end.

        Raises:
          ValueError: an op never ends, so that there is none.
        """
        if self.schedule is None:
            raise ValueError(
                f"scheduling a placement: an op never ends ({self.reason}); place ops only where "
                "Problem.allowed says so, on devices that are linked"
            )
        return self.schedule


def simulated(
    problem: Problem, device_of_op: IntArray, evaluator: SimulatingEvaluator | None = None
) -> Simulated:
    """Lays a problem out, unless an evaluator of it is at hand, and simulates one placement once.

    Args:
      device_of_op: i4[N], feasible or not.
      evaluator: one that was made for this problem; None makes one.

    Raises:
      ValueError: the placement's shape is wrong or a device does not exist.
    """
    evaluator = evaluator or SimulatingEvaluator(problem, num_threads=1)
    makespan, peaks, schedule = evaluator.simulator.run_in_full(device_of_op)
    outcome = evaluator.judge(device_of_op, makespan, peaks)
    return Simulated(problem, device_of_op, outcome, schedule)


# What a person, or a program that uses the API, reads of one simulated placement.


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
