"""Some numbers of shards: what a step of any takes at least (docs/bounds.md)."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray, LongArray, OpGraph
from graphs.problem import Problem
from rewrite.split.building.collectives import FIRST_AT_ONCE, FIRST_BLOCK_BYTES
from tfplace.bounds.load_bound import best_weights, load_of, may_fit, window_bound
from tfplace.bounds.lower_bound import NUM_WEIGHTS, ROUNDING, heads_and_tails
from tfplace.bounds.relaxation import DeviceClasses, device_classes
from tfplace.bounds.step_roles import Role, StepRoles
from tfplace.bounds.travel_bound import travel_bound
from tfplace.grouping.quotient import BoolArray

BLOCK_BYTES = FIRST_BLOCK_BYTES // 4
"""Tensors above FIRST_AT_ONCE may go from shard to shard in blocks of so many bytes at least: the
last block of a tensor, or one of few rows, is smaller than others."""


@dataclasses.dataclass(frozen=True)
class Prices:
    """Of R roles on D devices, at E numbers of entries.

    Attributes:
      entries: [E] ascending, e.
      seconds: f8[E, R, D]; nan where a step does not have the role, inf where it may not lie.
      is_convex: bool[R, D].
    """

    entries: Sequence[int]
    seconds: FloatArray
    is_convex: BoolArray

    def least(self, entries: int) -> FloatArray:
        """f8[R, D]: what one copy takes at least; 0.0 where nothing is known of it."""
        with np.errstate(invalid="ignore"):  # nan and inf come out as they should
            found = np.zeros(self.seconds.shape[1:])
            for known, seconds in zip(self.entries, self.seconds, strict=True):
                found = np.fmax(found, seconds * min(entries / known, 1.0))
            for low in range(len(self.entries) - 1):
                first, last = self.entries[low], self.entries[low + 1]
                if entries <= first or entries >= last:
                    found = np.fmax(found, np.where(self.is_convex, self._line(low, entries), 0.0))
        return found

    def _line(self, low: int, entries: int) -> FloatArray:
        """f8[R, D]: at some entries, the line through a price and the next one, rounded down."""
        first, last = self.entries[low], self.entries[low + 1]
        below, above = self.seconds[low], self.seconds[low + 1]
        at = below + (above - below) * ((entries - first) / (last - first))
        return np.asarray(at - ROUNDING * (above + np.abs(at)))


def prices_of(roles: Sequence[Role], steps: Sequence[StepRoles], batch: int) -> Prices:
    """Prices of some copies' roles in all steps that have them.

    Args:
      roles: [R].
    """
    known: dict[int, FloatArray] = {}
    for step in steps:
        here = step.of_roles(roles)
        for entries, of_step in (
            (batch // step.num_shards, step.least),
            (-(-batch // step.num_shards), step.most),
        ):
            seconds = np.where((here >= 0)[:, None], of_step[here], np.nan)
            if entries in known:
                seconds = np.fmin(known[entries], seconds)
            known[entries] = seconds
    read = sorted(each for each in known if each > 0)
    of_read = np.array([known[each] for each in read])
    return Prices(read, of_read, _is_convex(read, of_read))


def _is_convex(entries: Sequence[int], seconds: FloatArray) -> BoolArray:
    """bool[R, D]: no price that is known lies above what its neighbours say."""
    convex = np.ones(seconds.shape[1:], dtype=bool)
    for middle in range(1, len(entries) - 1):
        first, here, last = entries[middle - 1 : middle + 2]
        share = (here - first) / (last - first)
        with np.errstate(invalid="ignore"):
            chord = seconds[middle - 1] * (1.0 - share) + seconds[middle + 1] * share
            convex &= ~(seconds[middle] > chord * (1.0 + ROUNDING))
    return convex


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """Some numbers of shards.

    Attributes:
      first, last: the least and the greatest.
      lower: the step of the greatest number up to `first` that was read.
      base: that of the least one from `last` on; of none so great, of the greatest.
      split: all that were read.
      batch: entries of the batch.
    """

    first: int
    last: int
    lower: StepRoles
    base: StepRoles
    split: Sequence[StepRoles]
    batch: int

    def cut(self) -> "list[NumberRange]":
        """Two ranges."""
        middle = int(math.sqrt(self.first * self.last))
        return [dataclasses.replace(self, last=middle), dataclasses.replace(self, first=middle + 1)]

    def lower_bound_seconds(self) -> float:
        """What holds for every placement of a step of so many shards."""
        base = self.base
        path, work, sums = self._path(), self._work(), self._sums()
        if not self._is_read:
            is_common = np.all([each.of_roles(base.roles) >= 0 for each in self.split], axis=0)
            path[~is_common], work[~is_common] = 0.0, 0.0
        is_allowed = np.isfinite(base.problem.op_seconds)
        path, work = (np.where(is_allowed, each, np.inf) for each in (path, work))
        graph = dataclasses.replace(base.problem.graph, tensor_bytes=self._tensor_bytes())
        step = dataclasses.replace(base.problem, graph=graph, op_seconds=path)
        return copies_bound(Copies(step, work, sums, self._is_read), base)

    @property
    def _is_read(self) -> bool:
        """Whether this is one number, whose step was read."""
        return self.first == self.last == self.base.num_shards

    def _at_lower(self) -> FloatArray:
        """f8[R, D]: of what is whole or gathers shards, as `lower` or `base` has it, the least."""
        own = self.base.problem.op_seconds
        here = self.lower.of_roles(self.base.roles)
        seconds = np.minimum(self.lower.problem.op_seconds[here], own)
        return np.where((here >= 0)[:, None], seconds, 0.0)

    def _path(self) -> FloatArray:
        """f8[R, D]: what one copy takes at least."""
        base, of_others = self.base, self._at_lower()
        if not self._is_read:  # terms may be added one after another, or in blocks
            of_others = np.where(base.is_sum[:, None], 0.0, of_others)
        if self.last > base.num_shards:  # a copy that gathers others may work on its part besides
            of_others = np.where(base.is_copy[:, None], 0.0, of_others)
        of_copies = prices_of(base.roles, self.split, self.batch).least(self.batch // self.last)
        return np.where((base.is_copy & ~base.gathers)[:, None], of_copies, of_others)

    def _work(self) -> FloatArray:
        """f8[R, D]: what all copies of an op take at least; 0.0 of a sum's ops."""
        base, lower = self.base, self.lower
        largest = -(-self.batch // self.first)
        of_one = prices_of(base.roles, self.split, self.batch).least(largest)
        if lower.num_shards == 1:
            here = lower.of_roles(base.roles)
            unsplit = largest / self.batch * lower.most[here]
            of_one = np.where((here >= 0)[:, None], np.fmax(of_one, unsplit), of_one)
        of_others = np.where(base.is_copy, lower.num_shards, 1)[:, None] * self._at_lower()
        is_alone = (base.is_copy & ~base.gathers)[:, None]
        of_all = np.where(is_alone, self.batch / largest * of_one, of_others)
        return np.where(base.is_sum[:, None], 0.0, of_all)

    def _sums(self) -> FloatArray:
        """f8[X, D]: what the ops that add all terms of a tensor take, where all steps do so."""
        known = [each.sums for each in (self.lower, self.base)]
        if self.lower.num_shards == 1:
            known = known[1:] if self._is_read else []
        common = [name for name in self.base.sums if all(name in each for each in known)]
        least = [np.minimum.reduce([each[name] for each in known]) for name in common if known]
        return np.array(least).reshape(len(least), self.base.problem.num_devices)

    def _tensor_bytes(self) -> LongArray:
        """i8[T]: of one copy and of what is whole, at least."""
        base = self.base
        graph = base.problem.graph
        if self._is_read:
            return graph.tensor_bytes
        of_copy = base.is_copy[graph.tensor_producer]
        crosses = ~of_copy
        crosses[graph.use_tensor[base.is_sum[graph.use_op]]] = True
        is_cut = crosses & (graph.tensor_bytes > FIRST_AT_ONCE)
        sizes = np.where(is_cut, BLOCK_BYTES, graph.tensor_bytes)
        if self.last > base.num_shards:  # a tensor of a copy may be as small as you like
            sizes = np.where(of_copy, 0, sizes)
        return sizes


@dataclasses.dataclass(frozen=True)
class Copies:
    """What the ops of a split step take.

    Attributes:
      step: one copy of each of the R roles, what each takes at least.
      work: f8[R, D] what all copies take together.
      sums: f8[X, D] what other ops take, anywhere and at any time.
      is_read: whether its own shape is known, and not that of another number of shards.
    """

    step: Problem
    work: FloatArray
    sums: FloatArray
    is_read: bool


def copies_bound(copies: Copies, roles: StepRoles) -> float:
    """Seconds of every placement, at least; inf where it is proven that none can run.

    Args:
      roles: of a step of as many shards, or of more; of fewer, where copies' tensors have no bytes.
    """
    step = copies.step
    alone = device_classes(step)
    _, own_weights = best_weights(load_of(alone, step.graph, np.ones(step.num_ops, dtype=bool)))
    head, tail, path = heads_and_tails(step, alone, own_weights[:NUM_WEIGHTS])
    classes, graph = _with_sums(copies)
    everything = load_of(classes, graph, np.ones(graph.num_ops, dtype=bool))
    if np.isinf(classes.seconds).all(axis=1).any() or not may_fit(everything) or np.isinf(path):
        return float("inf")
    load, weights = best_weights(everything)
    free = np.zeros(len(copies.sums))
    window = window_bound(
        classes, graph, np.append(head, free), np.append(tail, free), weights[:NUM_WEIGHTS]
    )
    own = dataclasses.replace(classes, seconds=classes.seconds[: step.num_ops])
    travel = travel_bound(own, step, roles.sharing, head, tail, is_direct=copies.is_read)
    return float(max(path, load, window, travel)) * (1.0 - ROUNDING)


def _with_sums(copies: Copies) -> tuple[DeviceClasses, OpGraph]:
    """The work of a step and of sums that use nothing: seconds by class, and who lies where."""
    step, graph, count = copies.step, copies.step.graph, len(copies.sums)
    nothing = np.zeros(count, dtype=np.int64)
    graph = dataclasses.replace(
        graph,
        op_names=[*graph.op_names, *[""] * count],
        op_types=[*graph.op_types, *[""] * count],
        op_persistent_bytes=np.append(graph.op_persistent_bytes, nothing),
        op_temp_bytes=np.append(graph.op_temp_bytes, nothing),
        colocation_group=np.append(graph.colocation_group, np.full(count, -1, dtype=np.int32)),
    )
    together = dataclasses.replace(
        step,
        graph=graph,
        op_seconds=np.concatenate([copies.work, copies.sums]),
        pinned_device=np.append(step.pinned_device, np.full(count, -1, dtype=np.int32)),
    )
    return device_classes(together), graph
