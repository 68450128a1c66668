"""Policies that propose at once or at random: one-shot placements, single devices, random."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Outcome, Problem
from tfplace.algorithms.placers.legal import distinct, fallback_order, legal
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import group_allowed
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal

# Makes placements i4[B, N], when they are asked for.
Start = Callable[[], IntArray]


class OneShot:
    """Proposes placements once, feasible or not, then nothing; it learns nothing."""

    def __init__(self, place: Start) -> None:
        """Keeps what makes the placements, which runs when they are proposed."""
        self._place = place
        self._proposed = False

    def propose(self) -> Proposal | None:
        """The placements the first time, then None."""
        if self._proposed:
            return None
        self._proposed = True
        return Proposal(self._place())

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> snapshot.Snapshot:
        """Whether it has proposed."""
        return {"proposed": np.array(self._proposed)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken."""
        self._proposed = bool(state["proposed"])


MANY_DEVICES = 16
"""Beyond, one device of each kind stands for those that are alike."""


def single_devices(problem: Problem, seed: int = 0) -> IntArray:
    """Each device in turn gets all ops, but those that can't lie there.

    Ops without a kernel there, or pinned elsewhere, go to the CPU of the same task, as
    TensorFlow's soft placement has it. Memory is not made to fit: "one GPU is too small" is an
    answer.

    Returns:
      i4[B, N], B <= D, in device order; equal placements come once, and of more than MANY_DEVICES
      those of alike devices, too.
    """
    devices = list(range(problem.num_devices))
    if problem.num_devices > MANY_DEVICES and not (problem.pinned_device >= 0).any():
        devices = sorted({_kind(problem, device): device for device in devices[::-1]}.values())
    placements = [legal(problem, np.full(problem.num_ops, d, dtype=np.int32)) for d in devices]
    return distinct(placements)


def _kind(problem: Problem, device: int) -> tuple[object, ...]:
    """What a step on one device, and on the CPU beside it, depends on."""
    nearest = [int(other) for other in fallback_order(problem)[device, :2]]
    return (
        hashlib.sha256(problem.op_seconds[:, nearest].tobytes()).digest(),
        *(problem.device_types[each] for each in nearest),
        *(int(problem.device_slots[each]) for each in nearest),
        *(int(problem.device_memory_bytes[each]) for each in nearest),
        float(problem.link_bytes_per_second[nearest[0], nearest[1]]),
        float(problem.link_latency[nearest[0], nearest[1]]),
    )


class Random:
    """Draws each group's device uniformly from those it may use; never ends by itself."""

    def __init__(
        self, problem: Problem, seed: int = 0, num_groups: int = 64, batch_size: int = 16
    ) -> None:
        """Groups the ops, by minimum cuts (tfplace.grouping.coarsen)."""
        self._grouping = coarsen(problem, min(num_groups, max(problem.num_ops, 1)), seed)
        allowed = group_allowed(problem.allowed(), self._grouping)
        self._weights = allowed / np.maximum(allowed.sum(axis=1, keepdims=True), 1)
        self._rng = np.random.default_rng(seed)
        self._batch_size = batch_size

    def propose(self) -> Proposal:
        """The next `batch_size` placements."""
        limits = np.cumsum(self._weights, axis=1)
        draws = self._rng.random((self._batch_size, len(limits), 1))
        # The last limit may round to just below 1; no draw may fall beyond the last device.
        device_of_group = np.argmax(draws < limits, axis=2)
        last = limits.shape[1] - 1 - np.argmax(self._weights[:, ::-1] > 0, axis=1)
        device_of_group = np.where(draws[:, :, 0] < limits[:, -1], device_of_group, last)
        device_of_op: IntArray = device_of_group[:, self._grouping.group_of_op].astype(np.int32)
        return Proposal(device_of_op)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> snapshot.Snapshot:
        """The random generator's."""
        return {"rng": snapshot.of_generator(self._rng)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes what `state` took."""
        snapshot.into_generator(self._rng, state["rng"])
