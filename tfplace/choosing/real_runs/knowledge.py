"""What is known between two rounds, and which placements are worth another one."""

import math
from collections.abc import Mapping, Sequence, Set

import numpy as np

from graphs.by_key import by_key
from graphs.op_graph import FloatArray
from graphs.problem import Infeasible
from tfplace.choosing.baselines import Plan
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs.estimate import estimate
from tfplace.choosing.real_runs.plan import LoopConfig, Search
from tfplace.choosing.run_results import LEAST_MISS, Corrections


class Knowledge:
    """Measured placements and the machine that explains their steps.

    Attributes:
      corrections: by all that was measured.
      failed: {key: (placement, why it could not run)}.
    """

    def __init__(self, model: ForwardModel, least_gain: float) -> None:
        """Nothing is known."""
        self.corrections = Corrections.unknown(model)
        self.failed: dict[bytes, tuple[Plan, Infeasible]] = {}
        self._least_gain = least_gain
        self._plans: dict[str, Plan] = {}
        self._times = StepTimes()

    def add_round(self, plans: Sequence[Plan], seconds: Mapping[str, FloatArray]) -> None:
        """Takes {placement: f8[runs]} and corrects the simulator by everything measured so far."""
        self._plans.update({plan.name: plan for plan in plans if plan.name in seconds})
        self._times.add_round(seconds)
        if seconds:
            known, noise = self._times.seconds(), self._times.noise()
            self.corrections = estimate(
                self.corrections.model,
                np.array([self._plans[name].device_of_op for name in known]),
                np.array([*known.values()]),
                np.array([noise[name] for name in known]),
            )

    def by_speed(self) -> list[tuple[Plan, float]]:
        """Measured placements and their steps, the fastest first."""
        seconds = self._times.seconds()
        names = sorted(seconds, key=lambda name: seconds[name])
        return [(self._plans[name], seconds[name]) for name in names]

    @property
    def seen(self) -> set[bytes]:
        """Keys of what was measured or could not run."""
        return {plan.key for plan in self._plans.values()} | set(self.failed)

    def noise(self) -> float:
        """The share of a step below which a gain can't be told, or is not worth a round."""
        return max(self._least_gain, self._times.noise()[self.by_speed()[0][0].name])

    def promised(self, theta: FloatArray, fastest: Plan, plan: Plan) -> float:
        """The share of its step that the fastest one might gain on the machine of θ.

        What the prediction of both misses cancels out; where predictions miss more than they
        should, so much more may be gained.
        """
        both = np.array([fastest.device_of_op, plan.device_of_op])
        one, other = self.corrections.model.seconds(theta, both)
        return float(1.0 - other / one) + self.corrections.missed - LEAST_MISS


class Proposer:
    """Chooses what the next round measures."""

    def __init__(self, known: Sequence[Plan], search: Search, config: LoopConfig) -> None:
        """Keeps what every round may draw on; see `loop.measured_loop`."""
        self._known, self._search, self._config = known, search, config
        self._rng = np.random.default_rng(config.seed)

    def next_plans(self, knowledge: Knowledge, round_number: int) -> list[Plan]:
        """What promises more than the noise, beside the fastest so far; none if nothing does."""
        config, fastest = self._config, [plan for plan, _ in knowledge.by_speed()]
        promising = self._found(knowledge, fastest, f"round {round_number}: best on")
        theta = knowledge.corrections.theta
        for plan in self._known_by_prediction(knowledge, set(promising))[: config.num_known]:
            if knowledge.promised(theta, fastest[0], plan) > knowledge.noise():
                promising[plan.key] = plan
        return [*fastest[: config.num_again], *promising.values()] if promising else []

    def _found(
        self, knowledge: Knowledge, fastest: Sequence[Plan], title: str
    ) -> dict[bytes, Plan]:
        """What searches find on plausible machines and that promises more than the noise there."""
        corrections, found = knowledge.corrections, dict[bytes, Plan]()
        plans, seen = [*fastest[: self._config.num_starts], *self._known], knowledge.seen
        starts = np.array([plan.device_of_op for plan in plans], dtype=np.int32)
        drawn = [corrections.drawn(self._rng) for _ in range(self._config.max_drawn)]
        for number, theta in enumerate([corrections.theta, *drawn]):  # the most plausible first
            if len(found) > self._config.num_drawn:
                break
            best = self._search(corrections.model.on(theta), starts, number)
            if best is None:
                continue
            machine = "the corrected machine" if number == 0 else f"plausible machine {number}"
            plan = Plan(f"{title} {machine}", best)
            promised = knowledge.promised(theta, fastest[0], plan)
            if plan.key not in seen and promised > knowledge.noise():
                found.setdefault(plan.key, plan)
        return found

    def _known_by_prediction(self, knowledge: Knowledge, others: Set[bytes]) -> list[Plan]:
        """Known placements that were not measured yet, the fastest by prediction first."""
        left = [plan for plan in self._known if plan.key not in knowledge.seen | others]
        if not left:
            return []
        predicted = knowledge.corrections.seconds(np.array([plan.device_of_op for plan in left]))
        return [left[index] for index in np.argsort(predicted, kind="stable")]


POLISHES = 8
LEAST_NOISE = 0.005
"""Standard deviation of a log median, whatever the runs say."""
_SD_OF_MAD, _MEDIAN_LOSS = 1.4826, 1.2533
"""A normal variable's deviation over its MAD, and what a median's is over a mean's."""


class StepTimes:
    """Runs of placements, by any name of theirs, on a machine whose speed drifts between rounds.

    Within a round all placements are stepped in turn, so that all see the same machine. From round
    to round those that are measured again tell by how much the machine has changed: with x_pr the
    median log step of placement p in round r, x_pr = t_p + g_r, solved by alternating medians
    (median polish: Tukey, Exploratory Data Analysis, 1977). The last round's g is 0: it counts.
    """

    def __init__(self) -> None:
        self._rounds: list[dict[str, FloatArray]] = []

    def add_round(self, seconds: Mapping[str, FloatArray]) -> None:
        """Takes {placement: f8[runs]}, of placements that were stepped in turn."""
        self._rounds.append({name: np.log(runs) for name, runs in seconds.items() if len(runs)})

    @property
    def num_runs(self) -> int:
        """All of them."""
        return sum(len(runs) for each in self._rounds for runs in each.values())

    def seconds(self) -> dict[str, float]:
        """{placement: its step on the machine as it was in the last round}."""
        leveled = self._leveled(self._changes())
        return {name: float(np.exp(np.median(runs))) for name, runs in leveled.items()}

    def noise(self) -> dict[str, float]:
        """{placement: standard deviation of the log of its step}."""
        return {name: _noise(runs) for name, runs in self._leveled(self._changes()).items()}

    def _leveled(self, change: FloatArray) -> dict[str, FloatArray]:
        """{placement: f8[runs] logs of steps, all rounds}, as if all had been in the last round."""
        rounds = zip(change, self._rounds, strict=True)
        runs = by_key((name, logs - g) for g, each in rounds for name, logs in each.items())
        return {name: np.concatenate(parts) for name, parts in runs.items()}

    def _changes(self) -> FloatArray:
        """f8[rounds] log of how much slower the machine was than in the last round."""
        medians = [
            {name: float(np.median(logs)) for name, logs in each.items()} for each in self._rounds
        ]
        g = np.zeros(len(medians))
        for _ in range(POLISHES if len(medians) > 1 else 0):
            rounds = zip(g, medians, strict=True)
            seen = by_key((name, x - shift) for shift, each in rounds for name, x in each.items())
            t = {name: float(np.median(xs)) for name, xs in seen.items() if len(xs) > 1}
            for r, each in enumerate(medians):
                if common := [x - t[name] for name, x in each.items() if name in t]:
                    g[r] = np.median(common)
            g = g - g[-1]
        return g


def _noise(logs: FloatArray) -> float:
    spread = _SD_OF_MAD * float(np.median(np.abs(logs - np.median(logs))))
    return noise_of_median(spread, len(logs))


def noise_of_median(spread: float, num_runs: int) -> float:
    """The standard deviation of a median of so many log steps, of which each has `spread`."""
    return max(_MEDIAN_LOSS * spread / math.sqrt(num_runs), LEAST_NOISE)
