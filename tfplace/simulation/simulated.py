"""One placement with everything that the simulator says of it, simulated once."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible, Outcome
from graphs.problem import Problem
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.schedule import MemoryUse, Schedule, memory_use


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
      problem: what is simulated.
      device_of_op: i4[N], feasible or not.
      evaluator: one that was made for this problem; None makes one.

    Raises:
      ValueError: the placement's shape is wrong or a device does not exist.
    """
    evaluator = evaluator or SimulatingEvaluator(problem, num_threads=1)
    makespan, peaks, schedule = evaluator.simulator.run_in_full(device_of_op)
    outcome = evaluator.judge(device_of_op, makespan, peaks)
    return Simulated(problem, device_of_op, outcome, schedule)
