"""m-SCT: small communication times: a linear program picks favourite children, then ETF."""

import numpy as np
from scipy import optimize, sparse

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.earliest_start import NOBODY, earliest_task_first
from tfplace.algorithms.placers.memory import made_to_fit
from tfplace.grouping.quotient import fastest_seconds, transfer_seconds
from tfplace.simulation.simulator import Simulator

# Ops per linear program; a larger graph is cut into windows of its topological order.
WINDOW_OPS = 500

# An edge whose x is below this makes its end a favourite child (Hanen and Munier: 1/2; at most
# one edge of an op can lie below it).
FAVOURITE_BELOW = 0.5


def m_sct(problem: Problem, seed: int = 0) -> IntArray:
    """Favourite children by linear programming, then earliest task first that waits for them.

      minimise w subject to
        s_i + p_i + c_ij x_ij ≤ s_j        for each edge
        s_i + p_i ≤ w                      for each op
        Σ_j x_ij ≥ outdeg(i) − 1, Σ_i x_ij ≥ indeg(j) − 1, 0 ≤ x ≤ 1

    x_ij < 1/2 makes j the favourite child of i: the pair wants one device.

    Source: Hanen and Munier 1995 (SCT); Jeon et al., "Baechi", SoCC 2020 (m-SCT). Departures: a
    graph of more than WINDOW_OPS ops is cut into windows of its topological order, one program
    each, because x only matters between neighbours and a program of 10,000 ops takes minutes; for
    memory and the rest see m-ETF.

    Returns:
      i4[1, N].
    """
    simulator = Simulator(problem, num_threads=1)
    placement = earliest_task_first(simulator, favourite_children(problem))
    return made_to_fit(simulator, placement, seed)[None]


def favourite_children(problem: Problem, window_ops: int = WINDOW_OPS) -> IntArray:
    """i4[N]: each op's favourite child, or NOBODY; no op is the favourite of two.

    Raises:
      RuntimeError: if the solver fails, which a program that is always feasible rules out.
    """
    source, target, cost = _op_edges(problem)
    seconds = fastest_seconds(problem, problem.allowed())
    favourite = np.full(problem.num_ops, NOBODY, dtype=np.int32)
    for first in range(0, problem.num_ops, window_ops):
        last = min(first + window_ops, problem.num_ops)
        inside = np.flatnonzero((source >= first) & (target < last))
        if not len(inside):
            continue
        x = _solve(
            seconds[first:last], source[inside] - first, target[inside] - first, cost[inside]
        )
        chosen = inside[x < FAVOURITE_BELOW]
        favourite[source[chosen]] = target[chosen]
    return favourite


def _op_edges(problem: Problem) -> tuple[IntArray, IntArray, FloatArray]:
    """Edges between ops, each once: source, target, seconds to move all of its tensors."""
    producer, consumer, _ = problem.graph.op_edges()
    seconds = transfer_seconds(problem)[problem.graph.use_tensor]
    size = problem.num_ops
    edges = sparse.coo_array((seconds, (producer, consumer)), shape=(size, size)).tocsr().tocoo()
    return edges.row.astype(np.int32), edges.col.astype(np.int32), edges.data


def _solve(seconds: FloatArray, source: IntArray, target: IntArray, cost: FloatArray) -> FloatArray:
    """f8[E]: x of one window's program; the columns are s [n], x [E], w."""
    num_ops, num_edges = len(seconds), len(source)
    # The solver's tolerances are absolute, op times are microseconds: scale to a mean of 1.
    scale = max(float(np.concatenate([seconds, cost]).mean()), 1e-30)
    seconds, cost = seconds / scale, cost / scale
    edge, op = np.arange(num_edges), np.arange(num_ops)
    one = np.ones(num_edges)
    x_column, w_column = num_ops + edge, num_ops + num_edges
    width = w_column + 1

    order = sparse.coo_array(
        (
            np.concatenate([one, cost, -one]),
            (np.tile(edge, 3), np.concatenate([source, x_column, target])),
        ),
        shape=(num_edges, width),
    )
    end = sparse.coo_array(
        (
            np.repeat([1.0, -1.0], num_ops),
            (np.tile(op, 2), np.concatenate([op, np.full(num_ops, w_column)])),
        ),
        shape=(num_ops, width),
    )
    out_degree = sparse.coo_array((-one, (source, x_column)), shape=(num_ops, width))
    in_degree = sparse.coo_array((-one, (target, x_column)), shape=(num_ops, width))
    objective = np.zeros(width)
    objective[w_column] = 1.0
    result = optimize.linprog(
        objective,
        A_ub=sparse.vstack([order, end, out_degree, in_degree]).tocsr(),
        b_ub=np.concatenate(
            [
                -seconds[source],
                -seconds,
                1.0 - np.bincount(source, minlength=num_ops),
                1.0 - np.bincount(target, minlength=num_ops),
            ]
        ),
        bounds=[(0, None)] * num_ops + [(0, 1)] * num_edges + [(0, None)],
        method="highs",
    )
    if result.x is None:
        raise RuntimeError(f"solving m-SCT's linear program: {result.message}")
    return np.asarray(result.x[num_ops:w_column])
