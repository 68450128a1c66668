"""Answers for placements out of the simulator: what they cost, or why they can't run."""

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray, LongArray
from graphs.problem import Infeasible, Measurement, Outcome, Problem
from tfplace.simulation.simulator import Simulator


class SimulatingEvaluator:
    """A tfplace.search.trial.Evaluator: simulates placements on all cores.

    A placement is judged in this order: pins, kernels, colocation, memory; the first that fails
    is the reason.

    Attributes:
      simulator: what answers.
    """

    def __init__(self, problem: Problem, num_threads: int | None = None) -> None:
        """Lays out the problem; see Simulator."""
        self.simulator = Simulator(problem, num_threads)
        self._problem = problem
        group = problem.graph.colocation_group
        self._members = np.flatnonzero(group >= 0)
        # Each member's first fellow: a group is together if all lie where its first one lies.
        _, first, member_group = np.unique(
            group[self._members], return_index=True, return_inverse=True
        )
        self._first_fellow = self._members[first[member_group]]
        self._pinned = np.flatnonzero(problem.pinned_device >= 0)
        self._usable = problem.usable_bytes()

    def evaluate(self, device_of_op: IntArray) -> Sequence[Outcome]:
        """Outcomes [B] of placements i4[B, N]; ValueError: a wrong shape, or no such device."""
        makespans, peaks = self.simulator.run_many(device_of_op)
        return [
            self.judge(placement, makespan, peak)
            for placement, makespan, peak in zip(
                device_of_op, makespans.tolist(), peaks, strict=True
            )
        ]

    def judge(self, device_of_op: IntArray, makespan: float, peak: LongArray) -> Outcome:
        """The outcome of one placement i4[N] whose simulated makespan and peaks i8[D] are known."""
        peak_bytes = tuple(peak.tolist())
        obstacle = self._broken_pin(device_of_op)
        if obstacle is None and np.isinf(makespan):
            obstacle = self._missing_kernel(device_of_op)
        if obstacle is None:
            obstacle = self._split_colocation(device_of_op)
        if obstacle is not None:
            return Infeasible(*obstacle, peak_bytes, makespan)
        if np.any(peak > self._usable):
            return Infeasible("memory", self._memory_message(peak), peak_bytes, makespan)
        return Measurement(makespan, peak_bytes, "simulated")

    def _broken_pin(self, device_of_op: IntArray) -> tuple[str, str] | None:
        wanted = self._problem.pinned_device[self._pinned]
        broken = self._pinned[device_of_op[self._pinned] != wanted]
        if not len(broken):
            return None
        op, names = broken[0], self._problem.device_names
        return "pin", (
            f"op {self._problem.graph.op_names[op]!r} lies on {names[device_of_op[op]]} but is "
            f"pinned to {names[self._problem.pinned_device[op]]}{_and_more(len(broken))}"
        )

    def _missing_kernel(self, device_of_op: IntArray) -> tuple[str, str] | None:
        seconds = self._problem.op_seconds[np.arange(len(device_of_op)), device_of_op]
        missing = np.flatnonzero(np.isinf(seconds))
        if not len(missing):
            return None
        op, graph = missing[0], self._problem.graph
        return "no_kernel", (
            f"op {graph.op_names[op]!r} ({graph.op_types[op]}) has no kernel on "
            f"{self._problem.device_names[device_of_op[op]]}{_and_more(len(missing))}"
        )

    def _split_colocation(self, device_of_op: IntArray) -> tuple[str, str] | None:
        apart = device_of_op[self._members] != device_of_op[self._first_fellow]
        if not apart.any():
            return None
        index = int(np.argmax(apart))
        op, fellow = self._members[index], self._first_fellow[index]
        names, devices = self._problem.graph.op_names, self._problem.device_names
        return "colocation", (
            f"op {names[op]!r} lies on {devices[device_of_op[op]]} and {names[fellow]!r} on "
            f"{devices[device_of_op[fellow]]}, but they must share a device"
            f"{_and_more(int(apart.sum()))}"
        )

    def _memory_message(self, peak: LongArray) -> str:
        over = np.flatnonzero(peak > self._usable)
        worst = over[np.argmax(peak[over] - self._usable[over])]
        return (
            f"{self._problem.device_names[worst]} needs {peak[worst]:,} bytes at its peak, but "
            f"{int(self._usable[worst]):,} of its "
            f"{self._problem.device_memory_bytes[worst]:,} are usable with "
            f"{self._problem.memory_reserve:.0%} kept free{_and_more(len(over), 'devices')}"
        )


def _and_more(count: int, noun: str = "ops") -> str:
    """The end of a sentence about the first of `count`."""
    return f" ({count} such {noun})" if count > 1 else ""
