"""Cuts as placements: of the topological order, and minimum cuts."""

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import distinct, legal, working_devices
from tfplace.algorithms.placers.memory import made_to_fit, op_bytes_estimate
from tfplace.grouping.coarsen import minimum_cut
from tfplace.grouping.quotient import (
    colocation_units,
    fastest_seconds,
    group_allowed,
    group_sums,
    in_graph_order,
    quotient,
    use_seconds,
)
from tfplace.simulation.simulator import Simulator

# m-TOPO: the topological order, cut into as many pieces as there are devices.


def m_topo(problem: Problem, seed: int = 0) -> IntArray:
    """Fills devices one after another, in topological order, up to equal shares of memory.

      cap = Σ_i bytes_i / n + max_i bytes_i

    for n working devices; a device takes ops while its bytes stay within min(cap, what it has
    left after its reserve); a colocation group goes with its first op.

    Source: Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020
    (m-TOPO). Departures: bytes are the estimate of `placers.memory`, what lies past the last
    device's share goes to that device, and a placement that doesn't fit is repaired.

    Returns:
      i4[1, N].
    """
    simulator = Simulator(problem, num_threads=1)
    units = colocation_units(problem.graph)
    unit_bytes = group_sums(op_bytes_estimate(simulator), units)
    devices = working_devices(problem)
    cap = unit_bytes.sum() / len(devices) + unit_bytes.max(initial=0.0)
    limits = np.minimum(cap, problem.usable_bytes()[devices])
    # Units by their first op: that is when m-TOPO meets them.
    _, first_op = np.unique(units.group_of_op, return_index=True)
    unit_device = np.zeros(units.num_groups, dtype=np.int32)
    turn, used = 0, 0.0
    for unit in np.argsort(first_op, kind="stable"):
        if used + unit_bytes[unit] > limits[turn] and turn + 1 < len(devices):
            turn, used = turn + 1, 0.0
        used += unit_bytes[unit]
        unit_device[unit] = devices[turn]
    return made_to_fit(simulator, unit_device[units.group_of_op], seed)[None]


# Minimum cuts as placements; Scotch, of the same kind as METIS, is the baseline in ColocRL.
#
# A cut knows nothing of time: two halves of a chain are a perfect cut and never
# run at once. It is cheap, though, and annealing does well from it.


# How much heavier than the mean a part may be, as a share: METIS's default, and a loose one that
# lets a cut fall where the graph is thin.
IMBALANCES = (0.03, 0.5)

# Into each number of parts up to this one, beyond that into twice as many as before.
MOST_PARTS = 16


def minimum_cuts(problem: Problem, seed: int = 0) -> IntArray:
    """Cuts into 2 .. n parts for n working devices, balanced by seconds and by bytes.

    Vertices are colocation units; an edge weighs what moving its tensor takes. Part p goes to
    the p-th working device; what does not fit is repaired, of many cuts only into n parts.

    Returns:
      i4[B, N], distinct; all on one device where only one works.
    """
    simulator = Simulator(problem, num_threads=1)
    weights = (fastest_seconds(problem, problem.allowed()), op_bytes_estimate(simulator))
    num_devices = len(working_devices(problem))
    powers = {2**k for k in range(num_devices.bit_length())}
    few = set(range(2, min(num_devices, MOST_PARTS) + 1))
    cuts = [
        legal(problem, cut)
        if parts < num_devices > MOST_PARTS
        else made_to_fit(simulator, cut, seed)
        for parts in sorted({*few, *powers, num_devices} - {1})  # each takes a few cuts
        for weight in weights
        for imbalance in IMBALANCES
        for cut in [_cut(problem, parts, weight, imbalance, seed)]
    ]
    return distinct(cuts or [made_to_fit(simulator, np.zeros(problem.num_ops, np.int32), seed)])


def _cut(
    problem: Problem, num_parts: int, op_weight: FloatArray, imbalance: float, seed: int
) -> IntArray:
    """i4[N]: working devices of ops after a cut into parts of equal weight.

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
    unit_weight = group_sums(op_weight, units) * free
    part = minimum_cut((cut + cut.T).tocsr(), unit_weight, num_parts, imbalance, seed)
    # The parts that are not empty go to the first devices in graph order.
    return devices[in_graph_order(part[units.group_of_op]).group_of_op]
