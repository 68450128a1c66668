"""m-TOPO: the topological order, cut into as many pieces as there are devices."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.algorithms.placers.memory import op_bytes_estimate, repaired, sum_by_group
from tfplace.algorithms.placers.one_shot import OneShot
from tfplace.grouping.quotient import colocation_units
from tfplace.simulation.simulator import Simulator


class Topological(OneShot):
    """Fills devices one after another, in topological order, up to equal shares of memory.

      cap = Σ_i bytes_i / n + max_i bytes_i

    for n working devices; a device takes ops while its bytes stay within min(cap, what it has
    left after its reserve); a colocation group goes with its first op.

    Source: Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020
    (m-TOPO). Departures: bytes are the estimate of `placers.memory`, what lies past the last
    device's share goes to that device, and a placement that doesn't fit is repaired.
    """

    def place(self) -> IntArray:
        """i4[1, N]."""
        simulator = Simulator(self.problem, num_threads=1)
        units = colocation_units(self.problem.graph)
        op_bytes = op_bytes_estimate(simulator)
        unit_bytes = sum_by_group(units, op_bytes)
        devices = working_devices(self.problem)
        cap = unit_bytes.sum() / len(devices) + unit_bytes.max(initial=0.0)
        limits = np.minimum(cap, self.problem.usable_bytes()[devices])
        # Units by their first op: that is when m-TOPO meets them.
        _, first_op = np.unique(units.group_of_op, return_index=True)
        unit_device = np.zeros(units.num_groups, dtype=np.int32)
        turn, used = 0, 0.0
        for unit in np.argsort(first_op, kind="stable"):
            if used + unit_bytes[unit] > limits[turn] and turn + 1 < len(devices):
                turn, used = turn + 1, 0.0
            used += unit_bytes[unit]
            unit_device[unit] = devices[turn]
        placement = legal(self.problem, unit_device[units.group_of_op])
        return repaired(simulator, placement, self.seed)[None]
