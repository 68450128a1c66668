"""m-TOPO: the topological order, cut into as many pieces as there are devices."""

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.placers.memory import made_to_fit, op_bytes_estimate
from tfplace.grouping.quotient import colocation_units, group_sums
from tfplace.simulation.simulator import Simulator


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
