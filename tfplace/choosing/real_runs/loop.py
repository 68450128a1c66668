"""Simulating and measuring in turn: what real runs teach, the next search knows.

Each round measures a few different placements side by side, corrects the simulator by all that was
measured so far, and searches on from the best: on the corrected machine, and on others that are as
plausible (Thompson sampling: Thompson, Biometrika 1933), so that what might gain is tried and what
is open is learned. It ends with the time, or when no search promises more than the noise.
"""

from collections.abc import Callable, Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Infeasible
from tfplace.choosing.baselines import Plan
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs.knowledge import Knowledge, Proposer
from tfplace.choosing.real_runs.plan import (
    Learned,
    LoopConfig,
    Measure,
    Search,
    distinct,
    with_own_names,
)
from tfplace.choosing.run_results import MeasuredStep, Round


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
      first: what the first round measures.
      known: placements that searches begin with, and that may be measured, too.
      search: in the simulator of a given problem.
      has_time: whether there is time for a round of so many placements, and for the search that
        follows; asked before each.
    """
    config = config or LoopConfig()
    named = with_own_names([*first, *known])
    loop = _Loop(model, measure, config)
    proposer = Proposer(distinct(named[len(first) :]), search, config)
    plans = distinct(named[: len(first)])
    while plans and has_time(plans):
        loop.measure_round(plans)
        goes_on = loop.goes_on and has_time(plans)
        plans = proposer.next_plans(loop.knowledge, loop.number) if goes_on else []
    return loop.learned()


class _Loop:
    """The rounds so far."""

    def __init__(self, model: ForwardModel, measure: Measure, config: LoopConfig) -> None:
        self.knowledge = Knowledge(model, config.least_gain)
        self._measure, self._config = measure, config
        self._rounds: list[Round] = []
        self._num_idle = 0

    @property
    def number(self) -> int:
        """Of the next round, from 1 on."""
        return len(self._rounds) + 1

    @property
    def goes_on(self) -> bool:
        """Whether another round may be worth the while."""
        config = self._config
        is_over = self.number > config.max_rounds or self._num_idle >= config.max_idle
        return bool(self.knowledge.by_speed()) and not is_over

    def measure_round(self, plans: Sequence[Plan]) -> None:
        """Measures, and corrects the simulator by everything measured so far."""
        knowledge = self.knowledge
        before = knowledge.by_speed()[:1]
        predicted = knowledge.corrections.seconds(np.array([plan.device_of_op for plan in plans]))
        ran: dict[str, FloatArray] = {}
        for plan, runs in zip(plans, self._measure(plans), strict=True):
            if isinstance(runs, Infeasible):
                knowledge.failed[plan.key] = plan, runs
            elif len(runs):
                ran[plan.name] = runs
        knowledge.add_round(plans, ran)
        steps = [
            MeasuredStep(
                plan.name,
                float(seconds),
                float(np.median(ran[plan.name])) if plan.name in ran else None,
            )
            for plan, seconds in zip(plans, predicted, strict=True)
        ]
        self._rounds.append(Round(steps, knowledge.corrections.values()))
        self._num_idle = 0 if self._has_gained(before) else self._num_idle + 1

    def learned(self) -> Learned:
        """All of it."""
        known = self.knowledge
        failed = list(known.failed.values())
        return Learned(self._rounds, known.corrections, known.by_speed(), failed)

    def _has_gained(self, before: Sequence[tuple[Plan, float]]) -> bool:
        """Whether what is fastest now is so by more than the noise."""
        now = self.knowledge.by_speed()
        if not now or not before:
            return bool(now)
        seconds = {plan.key: seconds for plan, seconds in now}
        return now[0][1] < seconds[before[0][0].key] * (1.0 - self.knowledge.noise())
