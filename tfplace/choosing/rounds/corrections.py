"""Few numbers with a meaning that say how a machine differs from what a problem takes it to be.

Each is a coordinate of a vector θ f8[K] that is 0 where the machine is as taken. A factor exp(θ) is
a device's speed, links' latency and bytes per second, the work of transfers at their two ends, and
contention. What a step or an op takes to be started, of which nothing was known, is θ times a unit
of seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from graphs.executor_model import ExecutorModel
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.simulation.simulator import Simulator

SPEED = "speed of "
LATENCY, RATE = "link_latency", "link_bytes_per_second"
ENDS, CONTENTION = "transfer_work", "contention"
DISPATCH, START = "op_dispatch_seconds", "step_start_seconds"

COMMON_SPEED_SPREAD = 0.4
"""Of all devices of a type together: what other programs take, they take of each."""
MOST_SPEEDS = 8
"""A cluster of more devices has one speed for each type of them."""


@dataclasses.dataclass(frozen=True)
class Number:
    """One way in which a machine may differ.

    Attributes:
      name: a device's speed, or one of the names above.
      spread: the standard deviation of θ before anything is measured; of a device's speed, beside
        what all devices of its type share.
      unit_seconds: the value is θ times it; 0: the value is the factor exp(θ).
    """

    name: str
    spread: float
    unit_seconds: float = 0.0

    def value(self, theta: float) -> float:
        """What a person reads: a factor, or seconds."""
        return theta * self.unit_seconds if self.unit_seconds else math.exp(theta)

    @property
    def least(self) -> float:
        """Of θ: nothing takes less than no time."""
        return 0.0 if self.unit_seconds else -math.inf


def numbers_of(problem: Problem) -> list[Number]:
    """What may be wrong of a problem's machine; the figures are how far assumed ones were off."""
    numbers = [Number(SPEED + name, 0.3) for name in _speeds(problem)]
    if problem.num_devices > 1:
        numbers += [Number(LATENCY, 1.5), Number(RATE, 1.5)]
    if problem.executor is not None:
        numbers.append(Number(ENDS, 0.7))
        if problem.executor.op_slowdown is not None:
            numbers.append(Number(CONTENTION, 0.7))
    return [*numbers, Number(DISPATCH, 1.0, 2e-6), Number(START, 1.0, 1e-3)]


def _speeds(problem: Problem) -> list[str]:
    """[D] names, or the types' where there are many devices."""
    if problem.num_devices <= MOST_SPEEDS:
        return list(problem.device_names)
    return sorted(set(problem.device_types))


def corrected_problem(problem: Problem, numbers: Sequence[Number], theta: FloatArray) -> Problem:
    """The problem on the machine that θ f8[K] says; `step_start_seconds` is no part of it."""
    value = {each.name: each.value(t) for each, t in zip(numbers, theta.tolist(), strict=True)}
    op_seconds = problem.op_seconds / _speed_of_device(problem, value)
    if (extra := value.get(DISPATCH, 0.0)) > 0.0:
        op_seconds = np.where(problem.op_seconds > 0.0, op_seconds + extra, op_seconds)
    return dataclasses.replace(
        problem,
        op_seconds=op_seconds,
        link_latency=problem.link_latency * value.get(LATENCY, 1.0),
        link_bytes_per_second=problem.link_bytes_per_second * value.get(RATE, 1.0),
        executor=_executor(problem.executor, value.get(ENDS, 1.0), value.get(CONTENTION, 1.0)),
    )


def _speed_of_device(problem: Problem, value: dict[str, float]) -> FloatArray:
    """f8[D]."""
    by_name = [value.get(SPEED + name) for name in problem.device_names]
    of_type = [value.get(SPEED + kind, 1.0) for kind in problem.device_types]
    return np.array(
        [kind if own is None else own for own, kind in zip(by_name, of_type, strict=True)]
    )


def _executor(executor: ExecutorModel | None, ends: float, beside: float) -> ExecutorModel | None:
    if executor is None:
        return None
    slowdown = executor.op_slowdown
    return dataclasses.replace(
        executor,
        send_seconds=executor.send_seconds * ends,
        receive_seconds=executor.receive_seconds * ends,
        op_slowdown=None if slowdown is None else slowdown * beside,
    )


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
    ) -> None:
        """Lays nothing out yet.

        Args:
          problem: what is placed.
          dispatch: seconds of a placement's measured step that are known to be beside its makespan.
          spread_share: of the numbers' spreads, where the machine is better known than assumed.
        """
        self.problem = problem
        self.numbers = numbers_of(problem)
        self._dispatch = dispatch
        self._spread_share = spread_share

    @property
    def as_taken(self) -> FloatArray:
        """θ of the machine that the problem says."""
        return np.zeros(len(self.numbers))

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
            type_of.get(number.name.removeprefix(SPEED)) if number.name.startswith(SPEED) else None
            for number in self.numbers
        ]
        alike = [[one is not None and one == other for other in kinds] for one in kinds]
        common = COMMON_SPEED_SPREAD**2 * np.array(alike, dtype=np.float64)
        return np.asarray(self._spread_share**2 * (own + common))

    @property
    def least(self) -> FloatArray:
        """f8[K] the lowest θ that makes sense."""
        return np.array([number.least for number in self.numbers])

    def with_slower_links(self, factor: float) -> FloatArray:
        """θ of the machine as taken but for its links."""
        of_links = {LATENCY: np.log(factor), RATE: -np.log(factor)}
        return np.array([of_links.get(number.name, 0.0) for number in self.numbers])

    def on(self, theta: FloatArray) -> Problem:
        """The problem on one machine."""
        return self.corrected(self.problem, theta)

    def corrected(self, problem: Problem, theta: FloatArray) -> Problem:
        """Another problem of the same devices on the machine of θ."""
        return corrected_problem(problem, self.numbers, theta)

    def seconds(self, theta: FloatArray, placements: IntArray) -> FloatArray:
        """f8[P] predicted steps of i4[P, N] on the machine of θ, as a clock would show them."""
        makespans, _ = Simulator(self.on(theta), num_threads=1).run_many(placements)
        start = sum(
            number.value(float(t))
            for number, t in zip(self.numbers, theta, strict=True)
            if number.name == START
        )
        known = np.array([self._dispatch(placement) for placement in placements])
        return np.asarray(makespans + start + known)
