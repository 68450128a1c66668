"""m-ETF: earliest task first, within memory."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from tfplace.algorithms.placers.legal import legal
from tfplace.algorithms.placers.list_scheduling import earliest_task_first, list_problem
from tfplace.algorithms.placers.memory import repaired
from tfplace.algorithms.placers.one_shot import OneShot
from tfplace.simulation.simulator import Simulator


class EarliestTaskFirst(OneShot):
    """Starts, again and again, the op and device with the earliest possible start.

      (i, d) = argmin max(free(d), max over inputs j of end(j) + [d(j) ≠ d] c_ji)

    over ready ops i and working devices d with room for them; ties go to the earlier op. The
    first op of a colocation group decides for all of it.

    Source: Hwang et al. 1989 (ETF); Jeon et al., "Baechi", SoCC 2020 (m-ETF: with memory limits and
    co-placement). Departures: bytes are the estimate of `placers.memory`; ops with a kernel on an
    accelerator never go to the CPU, which ETF would fill because it is idle; what doesn't fit in
    the end is repaired.
    """

    def place(self) -> IntArray:
        """i4[1, N]."""
        simulator = Simulator(self.problem, num_threads=1)
        no_favourites = np.full(self.problem.num_ops, -1, dtype=np.int32)
        placement = earliest_task_first(
            simulator.arrays, list_problem(simulator, only_working=True), no_favourites
        )
        return repaired(simulator, legal(self.problem, placement), self.seed)[None]
