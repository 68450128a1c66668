"""What a split step is compared with: the step as it came, on one device and as it was given.

Small shards read all weights again, so a split step on one device takes longer than the unsplit one
there, and shares of it would flatter.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from graphs.problem import Problem
from tfplace.choosing.baselines import Baseline, Candidate, as_reported
from tfplace.choosing.by_devices import OnDevices, by_devices
from tfplace.simulation.evaluator import SimulatingEvaluator


@dataclasses.dataclass(frozen=True, eq=False)
class Unsplit:
    """The step as it came, and what was found for it, beside a number of shards that is better.

    Attributes:
      problem: of the unsplit step.
      baselines: its baselines.
      found: everything that was found for it, the baselines among it.
    """

    problem: Problem
    baselines: Sequence[Candidate]
    found: Sequence[Candidate]

    def reported(self) -> Mapping[str, Baseline]:
        """Its baselines as report.json has them."""
        return {each.name: as_reported(each, self.problem) for each in self.baselines}

    def better(self, rows: Sequence[OnDevices]) -> list[OnDevices]:
        """For each number of devices the split step's best, or this one's where that is better."""
        own = {row.max_devices: row for row in by_devices(self.problem, self.found)}
        pairs = [(row, own.get(row.max_devices, row)) for row in rows]
        return [min(pair, key=lambda row: row.step_seconds or math.inf) for pair in pairs]

    def on(self, corrected: Callable[[Problem], Problem]) -> Unsplit:
        """The same on the machine as real runs have shown it."""
        problem = corrected(self.problem)
        return Unsplit(problem, predicted(problem, self.baselines), predicted(problem, self.found))


def predicted(problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with new outcomes, but for those that were not tried or may not be."""
    evaluator = SimulatingEvaluator(problem, num_threads=1)
    return [
        dataclasses.replace(each, outcome=evaluator.evaluate(each.device_of_op[None])[0])
        if math.isfinite(each.step_seconds)
        else each
        for each in candidates
    ]
