"""Neighbours of a placement: what local search tries next."""

from __future__ import annotations

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.grouping.quotient import BoolArray, group_allowed

# Shares of the kinds of move; what is left moves one group to a device drawn for its speed.
FOLLOW_SHARE = 0.45
SWAP_SHARE = 0.1
RUN_SHARE = 0.2

# How often to draw again when a draw changes nothing.
MAX_DRAWS = 20


@dataclasses.dataclass(frozen=True)
class Neighbourhood:
    """The moves of one grouping.

    Attributes:
      grouping: what moves as one.
      free: i4[F] groups that may use more than one device, in graph order.
      allowed: bool[G, D].
      device_limits: f8[G, D] running sums of 1 / seconds, 0 for devices that it may not use: a
        group is seldom sent where it is slow.
      member_row: i8[G+1], member: i8[N] ops by group.
      producer, consumer: i4[E] groups at the ends of each use that leaves a group, of which one
        at least is free.
    """

    grouping: Grouping
    free: IntArray
    allowed: BoolArray
    device_limits: FloatArray
    member_row: np.ndarray
    member: np.ndarray
    producer: IntArray
    consumer: IntArray

    def neighbours(self, device_of_op: IntArray, count: int, rng: np.random.Generator) -> IntArray:
        """i4[count, N]: copies with one move made in each.

        Args:
          device_of_op: i4[N], legal. Groups may be split over devices: other groupings moved
            parts of them; then the group's first op says where it lies.
          count: how many.
          rng: draws the moves.
        """
        placements = np.repeat(device_of_op[None], count, axis=0)
        device_of_group = device_of_op[self.member[self.member_row[:-1]]]
        cut = np.flatnonzero(device_of_group[self.producer] != device_of_group[self.consumer])
        for placement in placements:
            for _ in range(MAX_DRAWS):
                if self._move(placement, device_of_group, cut, rng):
                    break
        return placements

    def _move(
        self,
        placement: IntArray,
        device_of_group: IntArray,
        cut: np.ndarray,
        rng: np.random.Generator,
    ) -> bool:
        """Makes one random move; returns whether anything changed."""
        kind = rng.random()
        if kind < FOLLOW_SHARE and len(cut):
            # One end of a cut edge goes where the other is, which saves a transfer.
            edge = cut[rng.integers(len(cut))]
            ends = int(self.producer[edge]), int(self.consumer[edge])
            goes, stays = ends if rng.random() < 0.5 else ends[::-1]
            return self._put(placement, goes, int(device_of_group[stays]))
        if kind < FOLLOW_SHARE + SWAP_SHARE:
            return self._swap(placement, device_of_group, rng)
        group = int(self.free[rng.integers(len(self.free))])
        limits = self.device_limits[group]
        device = int(np.searchsorted(limits, rng.random() * limits[-1], side="right"))
        if kind < FOLLOW_SHARE + SWAP_SHARE + RUN_SHARE:
            return self._run(placement, group, device, rng)
        return self._put(placement, group, device)

    def _put(self, placement: IntArray, group: int, device: int) -> bool:
        """Puts a group on a device that it may use; returns whether that changed anything."""
        if not self.allowed[group, device]:
            return False
        ops = self.member[self.member_row[group] : self.member_row[group + 1]]
        if np.all(placement[ops] == device):
            return False
        placement[ops] = device
        return True

    def _swap(
        self, placement: IntArray, device_of_group: IntArray, rng: np.random.Generator
    ) -> bool:
        """Two groups exchange devices, which keeps the balance."""
        first, second = (int(group) for group in self.free[rng.integers(len(self.free), size=2)])
        here, there = int(device_of_group[first]), int(device_of_group[second])
        if here == there or not (self.allowed[first, there] and self.allowed[second, here]):
            return False
        self._put(placement, first, there)
        self._put(placement, second, here)
        return True

    def _run(self, placement: IntArray, group: int, device: int, rng: np.random.Generator) -> bool:
        """Up to an eighth of the groups, neighbours in graph order, go to one device."""
        length = int(rng.integers(2, max(len(self.free) // 8, 2) + 1))
        start = int(np.searchsorted(self.free, group))
        last = int(self.free[min(start + length, len(self.free)) - 1])
        ops = self.member[self.member_row[group] : self.member_row[last + 1]]
        ops = ops[self.allowed[self.grouping.group_of_op[ops], device]]
        if np.all(placement[ops] == device):
            return False
        placement[ops] = device
        return True


def neighbourhood(problem: Problem, grouping: Grouping) -> Neighbourhood:
    """The moves of a grouping; the grouping must not split colocation groups."""
    allowed = group_allowed(problem.allowed(), grouping)
    seconds = np.zeros(allowed.shape)
    finite = np.where(np.isfinite(problem.op_seconds), problem.op_seconds, 0.0)
    np.add.at(seconds, grouping.group_of_op, finite)
    # Groups of no time go anywhere alike.
    speed = np.where(allowed, 1.0 / (seconds + 1e-9), 0.0)
    producer, consumer, _ = problem.graph.op_edges()
    source, target = grouping.group_of_op[producer], grouping.group_of_op[consumer]
    free = allowed.sum(axis=1) > 1
    leaves = (source != target) & (free[source] | free[target])
    row = np.zeros(grouping.num_groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(grouping.group_of_op, minlength=grouping.num_groups), out=row[1:])
    return Neighbourhood(
        grouping=grouping,
        free=np.flatnonzero(free).astype(np.int32),
        allowed=allowed,
        device_limits=np.cumsum(speed, axis=1),
        member_row=row,
        member=np.argsort(grouping.group_of_op, kind="stable"),
        producer=source[leaves],
        consumer=target[leaves],
    )
