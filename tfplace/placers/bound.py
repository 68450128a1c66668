"""How fast a step can be at best: bounds that hold for every placement."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem

ROUNDING = 1e-9


def lower_bound_seconds(problem: Problem) -> float:
    """The best of two bounds on the makespan under SPEC section 6's rules.

    Path: ops of a path run one after another, each at least as long as on its fastest device.
    Work: all ops at their fastest, spread evenly over all slots. Transfers count as free, so
    the bound is valid, and weak where they matter.
    """
    fastest = _fastest(problem)
    if not np.isfinite(fastest).all():
        return float("inf")
    work = float(fastest.sum()) / max(int(problem.device_slots.sum()), 1)
    # Sums in another order than the simulator's may come out higher by rounding.
    return max(work, critical_path_seconds(problem, fastest)) * (1.0 - ROUNDING)


def _fastest(problem: Problem) -> FloatArray:
    """f8[N]: seconds on the fastest device that the op may lie on."""
    seconds: FloatArray = np.where(problem.allowed(), problem.op_seconds, np.inf).min(axis=1)
    return seconds


def critical_path_seconds(problem: Problem, op_seconds: FloatArray) -> float:
    """Length of the longest path, each op as long as given, f8[N]."""
    if not len(op_seconds):
        return 0.0
    producer, consumer, _ = problem.graph.op_edges()
    order = np.argsort(consumer, kind="stable")
    sources = producer[order]
    start = np.searchsorted(consumer[order], np.arange(problem.num_ops + 1)).tolist()
    end = op_seconds.tolist()
    for op in range(problem.num_ops):  # ops are in a topological order
        first, last = start[op], start[op + 1]
        if first < last:
            end[op] += max(end[source] for source in sources[first:last].tolist())
    return float(max(end))
