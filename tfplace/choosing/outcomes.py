"""What a search has found for a step, and what real runs decided of it."""

import dataclasses
from collections.abc import Sequence

from graphs.problem import Problem
from tfplace.choosing.choose import Choice, choose
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.run_results import Comparison, Corrections, Round
from tfplace.preparing.prepare import PreparedModel


@dataclasses.dataclass(frozen=True)
class Found:
    """A problem, and what was found for it.

    Attributes:
      prepared: the step, split or not.
      searched: its placements.
    """

    prepared: PreparedModel
    searched: Searched

    def choice(self) -> Choice:
        """By prediction; compared with the unsplit step where that is known."""
        found = self.searched
        unsplit = () if found.unsplit is None else found.unsplit.baselines
        return choose(found.everything, self.prepared.problem, unsplit)


@dataclasses.dataclass(frozen=True)
class Decided:
    """What is written after real runs.

    Attributes:
      prepared: with the simulator as real runs have corrected it.
      searched: its candidates, predicted by that simulator.
      choice: what is written.
      timings: of given, single and placed; None where there were no real runs.
      rounds: what was measured to choose, and learned from it.
      corrections: of the machine; None where nothing was learned.
    """

    prepared: PreparedModel
    searched: Searched
    choice: Choice
    timings: Comparison | None = None
    rounds: Sequence[Round] = ()
    corrections: Corrections | None = None

    @property
    def has_forgotten(self) -> bool:
        """Whether the rounds contradict what earlier runs have taught of the machine."""
        if self.corrections is None or not self.prepared.cluster.taught:
            return False
        return not self.corrections.model.has_been_taught

    def corrected(self, problem: Problem) -> Problem:
        """Another problem of the same machine, as real runs have shown it."""
        return problem if self.corrections is None else self.corrections.corrected(problem)
