"""The unsplit step's long annealing, which goes on while other steps are read.

Reading and pricing a split step is Python on one core, for seconds; annealing is compiled code that
needs no lock of Python's. So it runs beside that, its chains in turn on the other core. Where the
unsplit step turns out to be the best, it goes on where it was, on all cores, to its end. It begins
with what needs no search: from a short search's best it would end higher (decision 050).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from graphs.op_graph import IntArray
from graphs.problem import Outcome
from tfplace.algorithms.table import policy_of
from tfplace.interruption import InThread, interruptible
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import PacedPolicy, Proposal
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.evaluator import SimulatingEvaluator

NAME = "annealing"
Result = TypeVar("Result")


class Annealing(PacedPolicy, Protocol):
    """A PacedPolicy whose annealing is spread over several searches."""

    def go_on(self, in_turn: bool = False) -> None:
        """Told before each search but the first: what is left now is for the rest of it.

        Args:
          in_turn: chains run one after another, on one core.
        """
        ...


class LongSearch:
    """One annealing in pieces: first_stage, then any number of the others, last_stages."""

    def __init__(
        self, instance: Instance, seed: int, start: IntArray | None, left: Callable[[], Limits]
    ) -> None:
        """Has not begun; `left` says what the annealing would have to its end, from the call on."""
        made: Annealing = policy_of(NAME, instance, seed, start)  # type: ignore[assignment]
        self._policy, self._problem, self._left = made, instance.problem, left

    def first_stage(self) -> Stage:
        """Its beginning, as a stage of a short search."""
        policy = _Beginning(self._policy, self._left)
        return Stage(NAME, lambda start: policy)

    def beside(
        self, work: Callable[[], Result], seconds: float = math.inf
    ) -> tuple[Result | None, SearchResult]:
        """What `work` returns, None where a signal came before; and what was found meanwhile.

        `work` runs in a thread, which is not waited for any longer than so many seconds.
        """
        running: InThread[Result | None] = InThread(work, seconds)
        end = time.monotonic() + seconds
        with interruptible() as interruption:
            found = self.until(
                lambda: not running.is_alive() or time.monotonic() > end, in_turn=True
            )
            return interruption.unless_seen_by(running, None, end - time.monotonic()), found

    def until(self, is_over: Callable[[], bool], in_turn: bool = False) -> SearchResult:
        """Goes on for a while."""
        self._policy.go_on(in_turn)
        policy = _Until(self._policy, is_over)
        evaluator = SimulatingEvaluator(self._problem)
        return search(
            [Stage(NAME, lambda start: policy)], evaluator, Limits(self._left().budget_seconds)
        )

    def last_stages(self, known: object) -> list[Stage]:
        """The rest of it, as the stages of a search, whatever is known by then."""
        self._policy.go_on()
        return [Stage(NAME, lambda start: self._policy)]


class _Until:
    """A PacedPolicy that ends early."""

    def __init__(self, policy: Annealing, is_over: Callable[[], bool]) -> None:
        self._policy, self._is_over = policy, is_over

    def allow(self, seconds_left: float, trials_left: int | None) -> None:
        self._policy.allow(seconds_left, trials_left)

    def propose(self) -> Proposal | None:
        return None if self._is_over() else self._policy.propose()

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        return self._policy.learn(proposal, outcomes)


class _Beginning(_Until):
    """A PacedPolicy that paces itself for more time than the search that asks it has."""

    def __init__(self, policy: Annealing, left: Callable[[], Limits]) -> None:
        super().__init__(policy, lambda: False)
        self._left = left

    def allow(self, seconds_left: float, trials_left: int | None) -> None:
        super().allow(self._left().budget_seconds, None)
