"""One placement's step, explained: what a report shows beside its numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.problem import Problem
from tfplace.report.explaining.causes import Causes, causes_of
from tfplace.report.explaining.hot_spots import OnCpu, ops_on_cpu
from tfplace.report.explaining.waiting import (
    DeviceTime,
    chain_shares,
    device_times,
    sentence,
    short_names,
)
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulated import Simulated


@dataclasses.dataclass(frozen=True)
class Explained:
    """A step and what there is to say of it.

    Attributes:
      placed: the placement, simulated; it has a schedule.
      causes: what each op of that schedule waited for.
      names: [D] short device names.
      times: [D] how each device spends the step, and what it waits for.
      chain: {(kind, device): seconds} of the chain of ops and transfers that ends with the step.
      on_cpu: why ops sit on a CPU.
    """

    placed: Simulated
    causes: Causes
    names: Sequence[str]
    times: Sequence[DeviceTime]
    chain: Mapping[tuple[str, int], float]
    on_cpu: Sequence[OnCpu]

    @property
    def problem(self) -> Problem:
        """What was placed."""
        return self.placed.problem

    @property
    def schedule(self) -> Schedule:
        """What happens when."""
        return self.placed.known_schedule()

    def sentences(self) -> list[str]:
        """[D]: how each device spends the step, in a sentence."""
        makespan = self.schedule.makespan
        return [sentence(t, d, makespan, self.names) for d, t in enumerate(self.times)]

    def waiting(self) -> list[dict[str, Any]]:
        """[D]: the same as report.json has it."""
        full = self.problem.device_names
        return [
            {
                "device": full[device],
                "computing_seconds": time.computing_seconds,
                "waits": [
                    {"for": kind, "device": full[other] if other >= 0 else None, "seconds": seconds}
                    for (kind, other), seconds in time.waits.items()
                ],
                "sentence": text,
            }
            for device, (time, text) in enumerate(zip(self.times, self.sentences(), strict=True))
        ]


def explain(placed: Simulated) -> Explained:
    """Explains the step of a placement.

    Raises:
      ValueError: it has no schedule, since an op lies where it has no kernel.
    """
    problem, schedule = placed.problem, placed.known_schedule()
    causes = causes_of(problem, schedule)
    return Explained(
        placed=placed,
        causes=causes,
        names=short_names(problem.device_names),
        times=device_times(problem, schedule, causes),
        chain=chain_shares(schedule, causes),
        on_cpu=ops_on_cpu(problem, schedule),
    )
