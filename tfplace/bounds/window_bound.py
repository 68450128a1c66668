"""The window bound: ops that can't start early and leave much to do have to fit between.

Let head[n] be the least seconds before the start of op n and tail[n] those after its end. In a
step of T seconds the ops with head >= a and tail >= b run between a and T - b wherever they lie, so

    T >= a + b + the load bound (load_bound.py) of these ops, for any a and b.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray, OpGraph
from tfplace.bounds.load_bound import DualWeights, best_weights, least_costs, load_of
from tfplace.bounds.relaxation import DeviceClasses

# So many values of a, and as many of b, are tried.
NUM_THRESHOLDS = 256


def window_bound(
    classes: DeviceClasses,
    graph: OpGraph,
    head: FloatArray,
    tail: FloatArray,
    weights: Sequence[DualWeights],
) -> float:
    """The best window by the given weights, in seconds, improved by weights of its own.

    Args:
      classes: seconds of ops.
      graph: the ops' units and bytes.
      head: f8[N] least seconds before an op's start.
      tail: f8[N] least seconds after an op's end.
      weights: each is tried on all windows.
    """
    window, first, last = best_window(classes, head, tail, weights)
    inside = (head >= first) & (tail >= last)
    if window > 0.0 and inside.any():
        load, _ = best_weights(load_of(classes, graph, inside))
        window = max(window, first + last + load)
    return window


def best_window(
    classes: DeviceClasses, head: FloatArray, tail: FloatArray, weights: Sequence[DualWeights]
) -> tuple[float, float, float]:
    """The window into which most work has to fit: its bound, a and b; see `window_bound`."""
    first, last = _thresholds(head), _thresholds(tail)
    row = np.searchsorted(first, head, side="right") - 1
    column = np.searchsorted(last, tail, side="right") - 1
    shape = (len(first), len(last))
    cell = row * len(last) + column
    filled = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    is_empty = _sum_above(filled) == 0
    best = (0.0, 0.0, 0.0)
    for each in weights:
        cost = least_costs(classes.seconds, each)
        work = np.bincount(cell, weights=cost, minlength=shape[0] * shape[1])
        bound = first[:, None] + last[None, :] + _sum_above(work.reshape(shape))
        bound[is_empty] = 0.0
        at = np.unravel_index(int(bound.argmax()), shape)
        if bound[at] > best[0]:
            best = float(bound[at]), float(first[at[0]]), float(last[at[1]])
    return best


def _thresholds(values: FloatArray) -> FloatArray:
    """Some of the values, ascending, the least among them."""
    shares = np.linspace(0.0, 1.0, NUM_THRESHOLDS)
    return np.unique(np.quantile(values, shares, method="lower"))


def _sum_above(table: np.ndarray) -> np.ndarray:
    """Each cell's sum over all cells that are not below it in either index."""
    return table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
