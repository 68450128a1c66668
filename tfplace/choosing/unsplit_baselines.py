"""What a split step is compared with: the step as it came, on one device and as it was given.

Small shards read all weights again, so a split step on one device takes longer than the unsplit one
there, and shares of it would flatter.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.names import original_name
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import completed
from tfplace.choosing.baselines import Baseline, Candidate, as_reported, predicted
from tfplace.choosing.device_counts import OnDevices, by_devices


@dataclasses.dataclass(frozen=True, eq=False)
class Unsplit:
    """The step as it came, and what was found for it, beside a number of shards that is better."""

    problem: Problem  # of the unsplit step
    baselines: Sequence[Candidate]  # its baselines
    found: Sequence[Candidate]  # everything that was found for it, the baselines among it

    def reported(self) -> Mapping[str, Baseline]:
        """Its baselines as report.json has them."""
        return {each.name: as_reported(each, self.problem) for each in self.baselines}

    def better(self, rows: Sequence[OnDevices]) -> list[OnDevices]:
        """For each number of devices the split step's best, or this one's where that is better."""
        own = {row.max_devices: row for row in by_devices(self.problem, self.found)}
        pairs = [(row, own.get(row.max_devices, row)) for row in rows]
        return [min(pair, key=lambda row: row.step_seconds or math.inf) for pair in pairs]

    def on(self, corrected: Callable[[Problem], Problem]) -> "Unsplit":
        """The same on the machine as real runs have shown it."""
        problem = corrected(self.problem)
        return Unsplit(problem, predicted(problem, self.baselines), predicted(problem, self.found))


def for_all_shards(problem: Problem, unsplit: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: every copy of an op where the op itself lies.

    What only the split step has lies with the op that it is named after (`a/b/summed` with `a/b`),
    or else with its first input.

    Args:
      problem: of the split step, N ops.
      unsplit: of the same step as it came.
      device_of_op: a placement of that.
    """
    known = dict(zip(unsplit.graph.op_names, device_of_op.tolist(), strict=True))
    wanted = np.array([_device(name, known) for name in problem.graph.op_names], dtype=np.int32)
    return completed(problem, wanted)


def _device(name: str, known: dict[str, int]) -> int:
    name = original_name(name)
    while name and name not in known:
        name = name.rpartition("/")[0]
    return known.get(name, -1)


@dataclasses.dataclass(frozen=True)
class TriedShards:
    """One number of shards that --shards=auto came by, for the report.

    Attributes:
      shards: M; 1 for the step as it is.
      step_seconds: the best predicted step; None where nothing was found.
      single_seconds: the best single device's.
      reason: why it was not tried, or nothing was found, else empty.
      cut: what is cut: "batch" or "weights".
      measured_seconds: the fastest measured step; None where none was timed to choose.
    """

    shards: int
    step_seconds: float | None = None
    single_seconds: float | None = None
    reason: str = ""
    cut: str = "batch"
    measured_seconds: float | None = None
