"""m-ETF: earliest task first, within memory."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.earliest_start import NOBODY, earliest_task_first
from tfplace.algorithms.placers.memory import made_to_fit
from tfplace.simulation.simulator import Simulator


def m_etf(problem: Problem, seed: int = 0) -> IntArray:
    """Starts, again and again, the op and device with the earliest possible start.

      (i, d) = argmin max(free(d), max over inputs j of end(j) + [d(j) ≠ d] c_ji)

    over ready ops i and working devices d with room for them; ties go to the earlier op. The
    first op of a colocation group decides for all of it.

    Source: Hwang et al. 1989 (ETF); Jeon et al., "Baechi", SoCC 2020 (m-ETF: with memory limits and
    co-placement). Departures: bytes are the estimate of `placers.memory`; ops with a kernel on an
    accelerator never go to the CPU, which ETF would fill because it is idle; what doesn't fit in
    the end is repaired.

    Returns:
      i4[1, N].
    """
    simulator = Simulator(problem, num_threads=1)
    no_favourites = np.full(problem.num_ops, NOBODY, dtype=np.int32)
    return made_to_fit(simulator, earliest_task_first(simulator, no_favourites), seed)[None]
