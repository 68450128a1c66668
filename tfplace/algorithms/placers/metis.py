"""Minimum cuts by METIS: parts of equal weight that exchange as little as possible.

Source: Karypis and Kumar 1998 (multilevel k-way partitioning); Scotch, of the same kind, is the
baseline in ColocRL. A cut knows nothing of time: two halves of a chain are a perfect cut and never
run at once. It is cheap, though, and annealing does well from it.
"""

from __future__ import annotations

import numpy as np
import pymetis

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.algorithms.placers.memory import op_bytes_estimate, repaired, sum_by_group
from tfplace.algorithms.placers.one_shot import OneShot
from tfplace.grouping.quotient import (
    colocation_units,
    fastest_seconds,
    group_allowed,
    quotient,
    use_seconds,
)
from tfplace.simulation.simulator import Simulator

# How much heavier than the mean a part may be, in thousandths: METIS's default, and a loose one
# that lets a cut fall where the graph is thin.
IMBALANCES = (30, 500)

# METIS sums weights in 32 bits.
_TOTAL_WEIGHT = 5e8


class Metis(OneShot):
    """Cuts into 2 .. n parts for n working devices, balanced by seconds and by bytes.

    Vertices are colocation units; an edge weighs what moving its tensor takes. Part p goes to
    the p-th working device; what does not fit is repaired.
    """

    def place(self) -> IntArray:
        """i4[B, N], distinct; all on one device where only one works."""
        simulator = Simulator(self.problem, num_threads=1)
        seconds = fastest_seconds(self.problem, self.problem.allowed())
        weights = (seconds, op_bytes_estimate(simulator))
        placements = [
            minimum_cut(self.problem, parts, weight, imbalance, self.seed)
            for parts in range(2, len(working_devices(self.problem)) + 1)
            for weight in weights
            for imbalance in IMBALANCES
        ]
        if not placements:
            placements = [np.zeros(self.problem.num_ops, dtype=np.int32)]
        legals = [legal(self.problem, placement) for placement in placements]
        fitting = np.stack([repaired(simulator, placement, self.seed) for placement in legals])
        _, first = np.unique(fitting, axis=0, return_index=True)
        return fitting[np.sort(first)]


def minimum_cut(
    problem: Problem, num_parts: int, op_weight: FloatArray, imbalance: int, seed: int
) -> IntArray:
    """i4[N]: working devices of ops after a cut into parts of equal weight.

    Args:
      problem: what is cut.
      num_parts: at most as many as there are working devices.
      op_weight: f8[N], not negative; any unit.
      imbalance: thousandths by which a part may exceed the mean weight.
      seed: of METIS.

    Returns:
      Not yet legal: ops that can't lie on a working device have one all the same.
    """
    units = colocation_units(problem.graph)
    devices = working_devices(problem)
    # Ops that can't lie on working devices neither weigh nor pull.
    free = np.any(group_allowed(problem.allowed(), units)[:, devices], axis=1)
    weights = use_seconds(problem)
    producer, consumer, _ = problem.graph.op_edges()
    weights = weights * free[units.group_of_op[producer]] * free[units.group_of_op[consumer]]
    cut = quotient(problem.graph, units, weights)
    edges = (cut + cut.T).tocsr()
    unit_weight = sum_by_group(units, op_weight) * free
    partition = pymetis.part_graph(
        num_parts,
        xadj=edges.indptr.astype(np.int32),
        adjncy=edges.indices.astype(np.int32),
        eweights=_whole_weights(edges.data),
        vweights=_whole_weights(unit_weight),
        options=pymetis.Options(seed=seed, ufactor=imbalance),
        recursive=False,
    )
    part = np.asarray(partition.vertex_part, dtype=np.int32)
    return devices[_in_graph_order(part, units)]


def _in_graph_order(part: IntArray, units: Grouping) -> IntArray:
    """i4[N]: part of each op, parts numbered by the mean position of their ops."""
    part_of_op = part[units.group_of_op]
    count = np.maximum(np.bincount(part_of_op), 1)
    position = np.bincount(part_of_op, np.arange(len(part_of_op))) / count
    rank = np.empty(len(count), dtype=np.int32)
    rank[np.argsort(position, kind="stable")] = np.arange(len(count))
    return rank[part_of_op]


def _whole_weights(weights: FloatArray) -> IntArray:
    """Positive whole numbers in proportion, small enough to be summed in 32 bits."""
    total = max(float(weights.sum()), 1e-30)
    return (np.rint(weights * (_TOTAL_WEIGHT / total)) + 1).astype(np.int32)
