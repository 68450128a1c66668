"""Few numbers with a meaning that say how a machine differs from what a problem takes it to be.

Each is a coordinate of a vector θ f8[K] that is 0 where the machine is as its cluster's figures
say. A factor exp(θ) is a device's speed, links' latency and bytes per second, the work of transfers
at their two ends, and contention. What a step or an op takes to be started, of which nothing was
known, is θ times a unit of seconds. What real runs taught of them is kept with a cluster.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import STEP_START, Cluster, Interval
from graphs.executor_model import ExecutorModel
from graphs.op_graph import FloatArray
from graphs.problem import Problem

SPEED = "speed of "
LATENCY, RATE = "link_latency", "link_bytes_per_second"
ENDS, CONTENTION = "transfer_work", "contention"
DISPATCH, START = "op_dispatch_seconds", STEP_START

MOST_SPEEDS = 8
"""A cluster of more devices has one speed for each type of them."""
NORMAL_95 = 1.96


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

    def theta(self, value: float) -> float:
        """Of a value."""
        return value / self.unit_seconds if self.unit_seconds else math.log(value)

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


def is_name(name: str) -> bool:
    """Whether a number may be called so."""
    return name.startswith(SPEED) or name in (LATENCY, RATE, ENDS, CONTENTION, DISPATCH, START)


def taught_theta(
    numbers: Sequence[Number], taught: Mapping[str, Interval]
) -> tuple[FloatArray, FloatArray]:
    """f8[K] θ of a machine as real runs have shown it, and how well they know it.

    The second are standard deviations, inf where nothing was taught.
    """
    theta, deviation = np.zeros(len(numbers)), np.full(len(numbers), np.inf)
    for k, number in enumerate(numbers):
        if number.name in taught:
            value, _, high = taught[number.name]
            theta[k] = number.theta(value)
            deviation[k] = (number.theta(high) - theta[k]) / NORMAL_95
    return theta, deviation


def on_taught_machine(problem: Problem, cluster: Cluster) -> Problem:
    """A problem of a cluster's figures, on the machine as earlier real runs have shown it."""
    if not cluster.taught:
        return problem
    numbers = numbers_of(problem)
    theta, _ = taught_theta(numbers, cluster.taught)
    return corrected_problem(problem, numbers, theta, np.zeros(len(numbers)))


def corrected_problem(
    problem: Problem, numbers: Sequence[Number], theta: FloatArray, taken: FloatArray
) -> Problem:
    """The problem on the machine of θ f8[K]; `step_start_seconds` is no part of it.

    Args:
      problem: on the machine of `taken`.
      numbers: [K] what may differ.
      theta: f8[K] wanted.
      taken: f8[K] zeros where the problem is as the cluster's figures say.
    """
    new = {each.name: each.value(t) for each, t in zip(numbers, theta.tolist(), strict=True)}
    old = {each.name: each.value(t) for each, t in zip(numbers, taken.tolist(), strict=True)}
    factor = {
        name: new[name] / old[name] for name in (LATENCY, RATE, ENDS, CONTENTION) if name in new
    }
    speeds = _speed_of_device(problem, new) / _speed_of_device(problem, old)
    less, more = old.get(DISPATCH, 0.0), new.get(DISPATCH, 0.0)
    op_seconds = problem.op_seconds
    if less or more:
        moved = np.maximum(op_seconds - less, 0.0) / speeds + more
        op_seconds = np.where(op_seconds > 0.0, moved, op_seconds)
    else:
        op_seconds = op_seconds / speeds
    return dataclasses.replace(
        problem,
        op_seconds=op_seconds,
        link_latency=problem.link_latency * factor.get(LATENCY, 1.0),
        link_bytes_per_second=problem.link_bytes_per_second * factor.get(RATE, 1.0),
        executor=_executor(problem.executor, factor.get(ENDS, 1.0), factor.get(CONTENTION, 1.0)),
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
