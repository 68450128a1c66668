"""Simulating and measuring in turn: what real runs teach, the next search knows.

Each round measures a few different placements side by side, corrects the simulator by all that was
measured so far, and searches on from the best: on the corrected machine, and on others that are as
plausible (Thompson sampling: Thompson, Biometrika 1933), so that what might gain is tried and what
is open is learned. It ends with the time, or when no search promises more than the noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Infeasible
from graphs.problem import Problem
from tfplace.choosing.rounds.corrections import ForwardModel
from tfplace.choosing.rounds.estimate import LEAST_MISS, Corrections, estimate
from tfplace.choosing.rounds.step_times import StepTimes


@dataclasses.dataclass(frozen=True)
class Plan:
    """Attributes: name: how a placement was found; device_of_op: i4[N]."""

    name: str
    device_of_op: IntArray

    @property
    def key(self) -> bytes:
        """The same for equal placements."""
        return self.device_of_op.astype(np.int32).tobytes()


Runs = Sequence[FloatArray | Infeasible]
Measure = Callable[[Sequence[Plan]], Runs]
"""f8[runs] of each placement, stepped in turn; or why one could not run."""
Search = Callable[[Problem, IntArray, int], IntArray | None]
"""The best placement i4[N] found from starts i4[B, N] with a seed; None where there is none."""


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """When a loop ends, and what a round measures.

    Attributes:
      max_rounds: at most.
      max_idle: rounds in a row without a gain, after which it ends.
      num_drawn: placements of a round that were found on plausible machines, beside that of the
        most plausible one.
      max_drawn: plausible machines that are searched on for them.
      num_known: of the known placements, those of the best corrected prediction, in a round.
      num_again: of the fastest placements that are measured again in each round.
      num_starts: of the fastest placements that searches begin with, beside the known ones.
      least_gain: a share of the step time that is worth another round.
      seed: of machines and searches.
    """

    max_rounds: int = 6
    max_idle: int = 2
    num_drawn: int = 2
    max_drawn: int = 4
    num_known: int = 2
    num_again: int = 2
    num_starts: int = 4
    least_gain: float = 0.01
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
    """One placement of a round.

    Attributes:
      name: how it was found.
      predicted_seconds: before the round corrected the simulator.
      measured_seconds: the median of its runs; None where it could not run.
    """

    name: str
    predicted_seconds: float
    measured_seconds: float | None


@dataclasses.dataclass(frozen=True)
class Round:
    """What was measured, and what the simulator was corrected by then.

    Attributes:
      measured: side by side.
      corrected: {number: its value, and the lowest and highest that are plausible}; see
        `corrections`.
    """

    measured: Sequence[MeasuredStep]
    corrected: Mapping[str, tuple[float, float, float]]


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a loop came to.

    Attributes:
      rounds: in order.
      corrections: by all of them.
      seconds: [(placement, its step on the machine as it was last)], the fastest first.
      failed: [(placement, why it could not run)].
    """

    rounds: Sequence[Round]
    corrections: Corrections
    seconds: Sequence[tuple[Plan, float]]
    failed: Sequence[tuple[Plan, Infeasible]]


def measured_loop(
    model: ForwardModel,
    first: Sequence[Plan],
    known: Sequence[Plan],
    measure: Measure,
    search: Search,
    config: LoopConfig | None = None,
    has_time: Callable[[Sequence[Plan]], bool] = lambda plans: True,
) -> Learned:
    """Measures, corrects and searches on until nothing promises more than the noise.

    Args:
      model: predicts.
      first: what the first round measures.
      known: placements that searches begin with, and that may be measured, too.
      measure: real runs.
      search: in the simulator of a given problem.
      config: limits.
      has_time: whether there is time for a round of so many placements, and for the search that
        follows; asked before each.
    """
    loop = _Loop(model, known, measure, search, config or LoopConfig())
    plans = _distinct(first)
    while plans and has_time(plans):
        loop.measure_round(plans)
        plans = loop.next_plans() if loop.goes_on and has_time(plans) else []
    return loop.learned()


def _distinct(plans: Sequence[Plan]) -> list[Plan]:
    """The first of equal ones."""
    return list({plan.key: plan for plan in reversed(plans)}.values())[::-1]


class _Loop:
    """What is known between two rounds."""

    def __init__(
        self,
        model: ForwardModel,
        known: Sequence[Plan],
        measure: Measure,
        search: Search,
        config: LoopConfig,
    ) -> None:
        self._known, self._measure, self._search = known, measure, search
        self._config = config
        self._rng = np.random.default_rng(config.seed)
        self._plans: dict[str, Plan] = {}
        self._failed: dict[bytes, tuple[Plan, Infeasible]] = {}
        self._times = StepTimes()
        self._rounds: list[Round] = []
        self._corrections = Corrections.unknown(model)
        self._num_idle = 0

    @property
    def goes_on(self) -> bool:
        """Whether another round may be worth the while."""
        config = self._config
        is_over = len(self._rounds) >= config.max_rounds or self._num_idle >= config.max_idle
        return bool(self._plans) and not is_over

    def measure_round(self, plans: Sequence[Plan]) -> None:
        """Measures, and corrects the simulator by everything measured so far."""
        before = self._fastest()
        predicted = self._corrections.seconds(np.array([plan.device_of_op for plan in plans]))
        ran: dict[str, FloatArray] = {}
        for plan, runs in zip(plans, self._measure(plans), strict=True):
            if isinstance(runs, Infeasible):
                self._failed[plan.key] = plan, runs
            elif len(runs):
                ran[plan.name] = runs
                self._plans[plan.name] = plan
        self._times.add_round(ran)
        if ran:
            self._corrections = self._estimated()
        self._rounds.append(_round(plans, predicted, ran, self._corrections))
        gained = bool(self._plans) and (before is None or self._gain_over(before))
        self._num_idle = 0 if gained else self._num_idle + 1

    def next_plans(self) -> list[Plan]:
        """What promises more than the noise, beside the fastest so far; none if nothing does."""
        order = self._by_speed()
        promising = self._found(order)
        for plan in self._known_by_prediction(set(promising))[: self._config.num_known]:
            if self._promised(self._corrections.theta, order[0], plan) > self._noise():
                promising[plan.key] = plan
        if not promising:
            return []
        again = [self._plans[name] for name in order[: self._config.num_again]]
        return [*again, *promising.values()]

    def _found(self, order: Sequence[str]) -> dict[bytes, Plan]:
        """What searches find on plausible machines and that promises more than the noise there."""
        found: dict[bytes, Plan] = {}
        for number, theta in enumerate(self._machines()):
            if len(found) > self._config.num_drawn:
                break
            best = self._search(self._corrections.model.on(theta), self._starts(order), number)
            if best is None:
                continue
            plan = Plan(self._name(number), best)
            is_new = plan.key not in self._seen()
            if is_new and self._promised(theta, order[0], plan) > self._noise():
                found.setdefault(plan.key, plan)
        return found

    def _known_by_prediction(self, others: Set[bytes]) -> list[Plan]:
        """Known placements that were not measured yet, the fastest by prediction first."""
        left = [plan for plan in self._known if plan.key not in self._seen() | others]
        if not left:
            return []
        predicted = self._corrections.seconds(np.array([plan.device_of_op for plan in left]))
        return [left[index] for index in np.argsort(predicted, kind="stable")]

    def _seen(self) -> set[bytes]:
        return {plan.key for plan in self._plans.values()} | set(self._failed)

    def learned(self) -> Learned:
        seconds = self._times.seconds()
        ranked = [(self._plans[name], seconds[name]) for name in self._by_speed()]
        return Learned(self._rounds, self._corrections, ranked, list(self._failed.values()))

    def _machines(self) -> list[FloatArray]:
        """θ of the most plausible machine first, then of some that are drawn."""
        drawn = [self._corrections.drawn(self._rng) for _ in range(self._config.max_drawn)]
        return [self._corrections.theta, *drawn]

    def _starts(self, order: Sequence[str]) -> IntArray:
        fastest = [self._plans[name].device_of_op for name in order[: self._config.num_starts]]
        known = [plan.device_of_op for plan in self._known]
        return np.array([*fastest, *known], dtype=np.int32)

    def _name(self, number: int) -> str:
        where = "on the corrected machine" if number == 0 else f"on plausible machine {number}"
        return f"round {len(self._rounds) + 1}: best {where}"

    def _promised(self, theta: FloatArray, fastest: str, plan: Plan) -> float:
        """The share of its step that the fastest one might gain.

        What the prediction of both misses cancels out; where predictions miss more than they
        should, so much more may be gained.
        """
        both = np.array([self._plans[fastest].device_of_op, plan.device_of_op])
        one, other = self._corrections.model.seconds(theta, both)
        return float(1.0 - other / one) + self._corrections.missed - LEAST_MISS

    def _estimated(self) -> Corrections:
        seconds, noise = self._times.seconds(), self._times.noise()
        names = list(seconds)
        placements = np.array([self._plans[name].device_of_op for name in names])
        return estimate(
            self._corrections.model,
            placements,
            np.array([seconds[name] for name in names]),
            np.array([noise[name] for name in names]),
        )

    def _by_speed(self) -> list[str]:
        seconds = self._times.seconds()
        return sorted(seconds, key=lambda name: seconds[name])

    def _fastest(self) -> Plan | None:
        return self._plans[self._by_speed()[0]] if self._plans else None

    def _gain_over(self, before: Plan) -> bool:
        """Whether what is fastest now is so by more than the noise."""
        seconds = self._times.seconds()
        return min(seconds.values()) < seconds[before.name] * (1.0 - self._noise())

    def _noise(self) -> float:
        """The share of a step below which a gain can't be told, or is not worth a round."""
        return max(self._config.least_gain, self._times.noise()[self._by_speed()[0]])


def _round(
    plans: Sequence[Plan],
    predicted: FloatArray,
    ran: Mapping[str, FloatArray],
    corrections: Corrections,
) -> Round:
    steps = [
        MeasuredStep(
            plan.name,
            float(seconds),
            float(np.median(ran[plan.name])) if plan.name in ran else None,
        )
        for plan, seconds in zip(plans, predicted, strict=True)
    ]
    return Round(steps, corrections.values())
