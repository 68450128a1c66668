"""At most G groups by contracting edges dearer than their ops, then a balanced minimum cut."""

import contextlib
import ctypes
import itertools
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pymetis
from scipy import sparse
from scipy.sparse import csgraph

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Grouping, Problem
from tfplace.grouping.quotient import (
    allowed_class,
    colocation_units,
    fastest_seconds,
    group_sums,
    in_graph_order,
    quotient,
    use_seconds,
)


def coarsen(
    problem: Problem,
    max_groups: int,
    seed: int = 0,
    imbalance: float = 0.1,
    start: Grouping | None = None,
    placement: IntArray | None = None,
) -> Grouping:
    """Groups of one number; see `Coarsening`, which makes several with less work."""
    return Coarsening(problem, start, placement).groups(max_groups, seed, imbalance)


class Coarsening:
    """Groups of a problem whose ops exchange much and take about equally long, in any number.

    Colocation groups stay whole. Ops share a group only if they may use the same devices: ops
    without a choice get one group for each set of devices, and the other groups are shared out
    among the free ops by their seconds. Free ops are first joined to the neighbour to which their
    dearest edge leads, if cutting that edge takes longer than the op itself, which is all that
    moving it elsewhere could save; then METIS cuts the result into balanced parts.

    Joining is most of the work, and neither seeds nor numbers of groups change it but for where it
    ends: so it is done once. Several threads may ask for groups.
    """

    def __init__(
        self, problem: Problem, start: Grouping | None = None, placement: IntArray | None = None
    ) -> None:
        """Joins nothing yet; no group crosses a border of i4[N] `placement`."""
        self.start = start or colocation_units(problem.graph)
        self._graph, self._allowed = problem.graph, problem.allowed()
        self._class_of_op = allowed_class(self._allowed, placement)
        self._seconds = fastest_seconds(problem, self._allowed)
        self._weights = use_seconds(problem)
        self._lock = threading.Lock()
        self._joined = [self.start]  # each with more joined than the one before
        self._is_all = False  # nothing more can be joined

    def groups(self, max_groups: int, seed: int = 0, imbalance: float = 0.1) -> Grouping:
        """At most so many groups.

        Args:
          max_groups: G, 1 to N. There are more groups than that only where there are more distinct
            sets of allowed devices.
          seed: of METIS; the same seed gives the same groups.
          imbalance: how much heavier than the mean a part may be, as a share of the mean (0 to 10).

        Raises:
          ValueError: max_groups is not positive.
        """
        if max_groups < 1:
            raise ValueError(f"coarsening a problem: wanted max_groups >= 1, got {max_groups}")
        # One group for every class; more for those with a choice, by their seconds.
        num_classes = int(self._class_of_op.max()) + 1
        choices, weight = np.zeros(num_classes, dtype=np.int64), np.zeros(num_classes)
        choices[self._class_of_op] = self._allowed.sum(axis=1)
        np.add.at(weight, self._class_of_op, self._seconds if self._seconds.any() else 1.0)
        weight *= choices > 1
        quota = np.ones(num_classes, dtype=np.int32)
        if weight.sum() > 0.0:
            spare = max(max_groups - num_classes, 0)
            share = spare * weight / weight.sum()
            quota += np.floor(share).astype(np.int32)
            left = spare - int(np.floor(share).sum())
            quota[np.argsort(np.floor(share) - share, kind="stable")[:left]] += 1
        grouping = self._joined_down_to(quota)
        group_seconds = group_sums(self._seconds, grouping)
        class_of_group = self._class_of_group(grouping)
        cut = quotient(self._graph, grouping, self._weights)
        symmetric = (cut + cut.T).tocsr()
        label = np.zeros(grouping.num_groups, dtype=np.int64)
        for number, parts in enumerate(quota):
            members = np.flatnonzero(class_of_group == number)
            edges = symmetric[members][:, members].tocsr()
            part = _balanced_parts(edges, group_seconds[members], int(parts), seed, imbalance)
            label[members] = number * (max_groups + 1) + part
        return in_graph_order(label[grouping.group_of_op])

    def _joined_down_to(self, quota: IntArray) -> Grouping:
        """As much as can be joined while no class falls below its quota i4[C]."""
        with self._lock:
            for number in itertools.count(1):
                if number == len(self._joined) and not self._is_all:
                    self._join()
                if number == len(self._joined):
                    break
                classes = self._class_of_group(self._joined[number])
                if (np.bincount(classes, minlength=len(quota)) < quota).any():
                    break
            return self._joined[number - 1]

    def _join(self) -> None:
        """Joins groups to their dearest neighbour of the same class while that pays for itself.

        Linear clustering's rule (Sarkar 1989: zero an edge when that can't lengthen the schedule),
        applied to all groups at once.
        """
        grouping = self._joined[-1]
        cut = quotient(self._graph, grouping, self._weights)
        dearest, neighbour = _dearest_edge((cut + cut.T).tocsr(), self._class_of_group(grouping))
        pays = dearest > group_sums(self._seconds, grouping)
        target = np.where(pays, neighbour, np.arange(grouping.num_groups))
        merged = joined(grouping, target.astype(np.int32))
        if merged.num_groups == grouping.num_groups:
            self._is_all = True
        else:
            self._joined.append(merged)

    def _class_of_group(self, grouping: Grouping) -> IntArray:
        """i4[G]."""
        number = np.zeros(grouping.num_groups, dtype=np.int32)
        number[grouping.group_of_op] = self._class_of_op
        return number


def _dearest_edge(edges: sparse.csr_array, class_of_group: IntArray) -> tuple[FloatArray, IntArray]:
    """Weight f8[G] and other end i4[G] of each group's dearest edge inside its class.

    Where it has none, the weight is -1 and the other end the group itself. Of equally dear edges
    the one with the lowest other end counts.
    """
    edges = edges.tocoo()
    source, target, weight = edges.row, edges.col, edges.data
    inside = class_of_group[source] == class_of_group[target]
    source, target, weight = source[inside], target[inside], weight[inside]
    order = np.lexsort((target, -weight, source))
    first, position = np.unique(source[order], return_index=True)
    dearest = np.full(len(class_of_group), -1.0)
    neighbour = np.arange(len(class_of_group), dtype=np.int32)
    dearest[first] = weight[order][position]
    neighbour[first] = target[order][position]
    return dearest, neighbour


def _balanced_parts(
    edges: sparse.csr_array, seconds: FloatArray, parts: int, seed: int, imbalance: float
) -> IntArray:
    """i4[G]: part of each group; what is too heavy for a part is one alone, METIS cuts the rest."""
    if len(seconds) <= parts:
        return np.arange(len(seconds), dtype=np.int32)
    # Ops of no time weigh a little, so that they don't all end in one part.
    weights = seconds + max(seconds.sum(), 1e-12) / len(seconds) / 100.0
    # Vertices that weigh more than an even part of them and all that is lighter, heaviest first:
    # METIS can't balance these, leaves parts empty and complains on standard output.
    order = np.argsort(-weights, kind="stable")
    left = weights.sum() - np.cumsum(weights[order]) + weights[order]
    even = left / np.maximum(parts - np.arange(len(weights)), 1)
    light = np.flatnonzero((weights[order] <= even) | (np.arange(len(weights)) >= parts - 1))
    alone = order[: light[0]]
    rest = np.setdiff1d(np.arange(len(seconds)), alone)
    part = np.zeros(len(seconds), dtype=np.int32)
    part[alone] = np.arange(len(alone))
    if parts - len(alone) == 1:
        part[rest] = len(alone)
        return part
    between = edges[rest][:, rest].tocsr()
    num_parts = parts - len(alone)
    part[rest] = len(alone) + minimum_cut(between, weights[rest], num_parts, imbalance, seed)
    return part


def joined(grouping: Grouping, target_of_group: IntArray) -> Grouping:
    """Merges each group i4[G] with the group it points at, chains and circles included."""
    size = grouping.num_groups
    links = sparse.coo_array(
        (np.ones(size, dtype=bool), (np.arange(size), target_of_group)), shape=(size, size)
    )
    _, part = csgraph.connected_components(links, directed=False)
    return in_graph_order(part[grouping.group_of_op])


def colocrl_grouping(problem: Problem, placement: IntArray | None = None) -> Grouping:
    """Colocation groups, then repeatedly joins a group to its only consumer, to a fixed point.

    Source: Mirhoseini et al., ICML 2017, "co-locating operations"; the joining rule as in its
    successors' code. Departure: groups join only where they may use the same devices, so that
    no group is left without a device and no GPU op is dragged to the CPU by a CPU-only consumer.

    Args:
      problem: N ops.
      placement: i4[N] a legal placement whose borders no group crosses, or None.

    Returns:
      A grouping that keeps colocation groups whole, numbered in graph order.
    """
    class_of_op = allowed_class(problem.allowed(), placement)
    uses = np.ones(len(problem.graph.use_op))
    grouping = colocation_units(problem.graph)
    while True:
        class_of_group = np.zeros(grouping.num_groups, dtype=np.int32)
        class_of_group[grouping.group_of_op] = class_of_op
        # The group that alone uses a group's tensors; where none or several do, the group itself.
        edges = quotient(problem.graph, grouping, uses)
        target = np.arange(grouping.num_groups, dtype=np.int32)
        single = np.diff(edges.indptr) == 1
        target[single] = edges.indices[edges.indptr[:-1][single]]
        stays = class_of_group[target] != class_of_group
        target[stays] = np.arange(grouping.num_groups, dtype=np.int32)[stays]
        merged = joined(grouping, target)
        if merged.num_groups == grouping.num_groups:
            return merged
        grouping = merged


# METIS sums weights in 32 bits: all vertices together, and all edges together, stay below this.
_TOTAL_WEIGHT = 500_000_000


def minimum_cut(
    edges: sparse.csr_array, weights: FloatArray, num_parts: int, imbalance: float, seed: int
) -> IntArray:
    """i4[V]: part of each vertex, 0 to num_parts - 1 in no order; a part may be empty.

    Args:
      edges: f8[V, V] symmetric, without a diagonal: what cutting each edge costs.
      weights: f8[V], not negative; any unit.
      num_parts: at least 2.
      imbalance: how much heavier than the mean a part may be, as a share of the mean.
      seed: the same seed gives the same parts. METIS seeds the C library's generator, for which
        0 and 1 are the same.
    """
    with silenced_stdout():
        partition = pymetis.part_graph(
            num_parts,
            xadj=edges.indptr.astype(np.int32),
            adjncy=edges.indices.astype(np.int32),
            eweights=_whole_weights(edges.data),
            vweights=_whole_weights(weights),
            options=pymetis.Options(seed=seed % 2**31, ufactor=max(int(imbalance * 1000), 1)),
            recursive=False,
        )
    return np.asarray(partition.vertex_part, dtype=np.int32)


def _whole_weights(weights: FloatArray) -> IntArray:
    """Positive whole numbers in proportion to f8 weights, small enough to be summed in 32 bits."""
    total = max(float(weights.sum()), 1e-30)
    return (np.rint(weights * (_TOTAL_WEIGHT / total)) + 1).astype(np.int32)


STDOUT = 1
_ONE_AT_A_TIME = threading.RLock()
"""Two threads that did this at once would leave standard output closed for good."""


@contextlib.contextmanager
def silenced_stdout() -> Iterator[None]:
    """Drops what C code prints on standard output meanwhile, also what it has not flushed yet.

    METIS complains there of graphs with few vertices, in the middle of a JSON object.
    """
    with _ONE_AT_A_TIME:
        flush = ctypes.CDLL(None).fflush
        try:
            kept = os.dup(STDOUT)
        except OSError:  # there is none
            yield
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        flush(None)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT)
        try:
            yield
        finally:
            flush(None)
            os.dup2(kept, STDOUT)
            os.close(nowhere)
            os.close(kept)
