"""Predicts measured steps on any machine that `graphs/machine_numbers.py` can say."""

import functools
from collections.abc import Callable, Mapping

import numpy as np

from graphs import machine_numbers
from graphs.cluster import Interval
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.simulation.simulator import Simulator

COMMON_SPEED_SPREAD = 0.4
"""Of the log speed that all devices of a type share: other programs slow all of them down."""
ANOTHER_RUN = 0.5
"""Share of the spreads by which taught numbers may differ for another model, or at another time."""


class ForwardModel:
    """Predicts measured steps on any machine that corrections may say.

    Attributes:
      problem: as it was taken to be.
      numbers: [K] what may differ.
    """

    def __init__(
        self,
        problem: Problem,
        dispatch: Callable[[IntArray], float] = lambda placement: 0.0,
        spread_share: float = 1.0,
        taught: Mapping[str, Interval] | None = None,
        is_believed: bool = True,
    ) -> None:
        """Lays nothing out yet.

        Args:
          problem: what is placed, on the machine that was taught.
          dispatch: seconds of a placement's measured step that are known to be beside its makespan.
          spread_share: of the numbers' spreads, where the machine is better known than assumed.
          taught: {number: value, low, high} by earlier runs.
          is_believed: whether the machine is still taken to be so.
        """
        self.problem = problem
        self.numbers = machine_numbers.numbers_of(problem)
        self._arguments = problem, dispatch, taught
        self._dispatch = dispatch
        self._spread_share = spread_share
        self._of_problem, deviation = machine_numbers.taught_theta(self.numbers, taught or {})
        self.has_been_taught = bool(taught) and is_believed
        self._as_taken = self._of_problem if is_believed else np.zeros(len(self.numbers))
        self._deviation = deviation if is_believed else np.full(len(deviation), np.inf)

    def forgetting(self) -> "ForwardModel":
        """The same where nothing is believed of what earlier runs have taught.

        Nor are the figures that were measured before it any better than assumed ones.
        """
        problem, dispatch, taught = self._arguments
        return ForwardModel(problem, dispatch, 1.0, taught, is_believed=False)

    @property
    def as_taken(self) -> FloatArray:
        """f8[K] θ of the machine that is most plausible before anything is measured."""
        return self._as_taken.copy()

    @property
    def spread(self) -> FloatArray:
        """f8[K] standard deviations of θ before anything is measured."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @functools.cached_property
    def covariance(self) -> FloatArray:
        """f8[K, K] of θ before anything is measured: equal devices are much alike."""
        own = np.diag([number.spread**2 for number in self.numbers])
        type_of = dict(zip(self.problem.device_names, self.problem.device_types, strict=True))
        kinds = [
            type_of.get(number.name.removeprefix(machine_numbers.SPEED))
            if number.name.startswith(machine_numbers.SPEED)
            else None
            for number in self.numbers
        ]
        alike = [[one is not None and one == other for other in kinds] for one in kinds]
        common = COMMON_SPEED_SPREAD**2 * np.array(alike, dtype=np.float64)
        unknown = self._spread_share**2 * (own + common)
        spread = np.sqrt(np.diag(unknown))
        share = np.minimum(np.hypot(self._deviation / spread, ANOTHER_RUN), 1.0)
        return np.asarray(unknown * share * share[:, None])

    @property
    def least(self) -> FloatArray:
        """f8[K] the lowest θ that makes sense."""
        return np.array([number.least for number in self.numbers])

    def with_slower_links(self, factor: float) -> FloatArray:
        """θ of the machine as taken but for its links."""
        of_links = {machine_numbers.LATENCY: np.log(factor), machine_numbers.RATE: -np.log(factor)}
        moved = np.array([of_links.get(number.name, 0.0) for number in self.numbers])
        return np.asarray(self.as_taken + moved)

    def on(self, theta: FloatArray) -> Problem:
        """The problem on one machine."""
        return self.corrected(self.problem, theta)

    def corrected(self, problem: Problem, theta: FloatArray) -> Problem:
        """Another problem of the same devices, taken the same way, on the machine of θ."""
        return machine_numbers.corrected_problem(problem, self.numbers, theta, self._of_problem)

    def seconds(self, theta: FloatArray, placements: IntArray) -> FloatArray:
        """f8[P] predicted steps of i4[P, N] on the machine of θ, as a clock would show them."""
        makespans, _ = Simulator(self.on(theta), num_threads=1).run_many(placements)
        known = np.array([self._dispatch(placement) for placement in placements])
        return np.asarray(makespans + known + self._start(theta) - self._start(self._of_problem))

    def _start(self, theta: FloatArray) -> float:
        """What a step takes to be started; what the problem takes it to be is known already."""
        numbers = zip(self.numbers, theta.tolist(), strict=True)
        return sum(number.value(t) for number, t in numbers if number.name == machine_numbers.START)
