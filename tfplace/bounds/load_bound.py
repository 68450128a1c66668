"""The load bound: all ops have to be done by the devices there are, memory included.

docs/bounds.md has the argument: it holds whatever gave the weights, which HiGHS only proposes.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from graphs.op_graph import FloatArray, OpGraph
from tfplace.bounds.relaxation import DeviceClasses
from tfplace.grouping.quotient import BoolArray, colocation_units, group_sums

# The cutting planes stop after so many, or when they can't raise the bound by more than this share.
MAX_CUTS = 40
TOLERANCE = 1e-4

# Bytes may cost so many times what all seconds together, spread over the room, would say.
MAX_BYTE_WEIGHT = 100.0


@dataclasses.dataclass(frozen=True)
class Load:
    """What has to be done somewhere, by colocation unit.

    Attributes:
      seconds: f8[U, K] of each unit on each class; inf where it may not lie.
      bytes: f8[U] persistent.
      slots: f8[K] of all devices of a class together.
      room_bytes: f8[K] of all devices of a class together.
    """

    seconds: FloatArray
    bytes: FloatArray
    slots: FloatArray
    room_bytes: FloatArray


@dataclasses.dataclass(frozen=True)
class DualWeights:
    """What a second and a byte of each class cost in the module's formula.

    Attributes:
      per_second: f8[K], w; times the slots they sum to 1.
      per_byte: f8[K], m, in seconds per byte.
    """

    per_second: FloatArray
    per_byte: FloatArray


def load_of(classes: DeviceClasses, graph: OpGraph, counted: BoolArray) -> Load:
    """The seconds of the ops bool[N] that are `counted`; all ops' bytes and forbidden devices."""
    units = colocation_units(graph)
    counts = counted[:, np.newaxis] | np.isinf(classes.seconds)
    return Load(
        seconds=group_sums(np.where(counts, classes.seconds, 0.0), units),
        bytes=group_sums(graph.op_persistent_bytes.astype(np.float64), units),
        slots=classes.slots * classes.num_devices,
        room_bytes=classes.room_bytes,
    )


def dual_value(load: Load, weights: DualWeights) -> tuple[float, FloatArray, FloatArray]:
    """The module's right-hand side; the seconds and bytes f8[K] that its minima put on a class."""
    with np.errstate(invalid="ignore"):  # a weight of 0 times inf
        cost = weights.per_second * load.seconds + weights.per_byte * load.bytes[:, None]
    cost[np.isinf(load.seconds)] = np.inf
    chosen = cost.argmin(axis=1)
    units, size = np.arange(len(chosen)), len(load.slots)
    seconds = np.bincount(chosen, load.seconds[units, chosen], size).astype(np.float64)
    placed_bytes = np.bincount(chosen, load.bytes, size).astype(np.float64)
    value = float(cost[units, chosen].sum() - (weights.per_byte * load.room_bytes).sum())
    return value, seconds, placed_bytes


def best_weights(load: Load) -> tuple[float, list[DualWeights]]:
    """The best bound found, in seconds, and all weights tried on the way, the best ones first."""
    total = float(load.seconds[np.isfinite(load.seconds)].sum())
    most = MAX_BYTE_WEIGHT * total / max(float(load.room_bytes.min()), 1.0)
    num_classes = len(load.slots)
    weights = DualWeights(np.full(num_classes, 1.0 / load.slots.sum()), np.zeros(num_classes))
    tried: list[tuple[float, DualWeights]] = []
    cuts: list[FloatArray] = []
    for _ in range(MAX_CUTS):
        value, seconds, placed_bytes = dual_value(load, weights)
        tried.append((value, weights))
        cuts.append(np.concatenate([seconds, placed_bytes - load.room_bytes]))
        proposed = _next_weights(cuts, load, total, most)
        if proposed is None:
            break
        limit, weights = proposed
        best = max(value for value, _ in tried)
        if limit <= best + TOLERANCE * abs(best):
            break
    tried.sort(key=lambda pair: -pair[0])
    return tried[0][0], [weights for _, weights in tried]


def _next_weights(
    cuts: list[FloatArray], load: Load, total: float, most: float
) -> tuple[float, DualWeights] | None:
    """The highest point under all cuts: its height and weights; None where HiGHS finds none.

    Scaled to numbers around 1: seconds by `total`, weights of bytes by `most`.
    """
    num_classes = len(load.slots)
    scale = np.concatenate([np.full(num_classes, 1.0), np.full(num_classes, most)])
    rows = np.array(cuts) * scale / max(total, 1e-300)
    solved = linprog(
        c=np.concatenate([np.zeros(2 * num_classes), [-1.0]]),
        A_ub=np.hstack([-rows, np.ones((len(rows), 1))]),
        b_ub=np.zeros(len(rows)),
        A_eq=np.concatenate([load.slots, np.zeros(num_classes + 1)])[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * num_classes + [(0.0, 1.0)] * num_classes + [(None, None)],
        method="highs",
    )
    if solved.x is None:
        return None
    per_second = np.maximum(solved.x[:num_classes], 0.0)
    per_byte = np.maximum(solved.x[num_classes : 2 * num_classes], 0.0) * most
    # What the solver calls 1 is made exactly 1; any nonnegative weights are then valid.
    norm = float((per_second * load.slots).sum())
    if norm <= 0.0:
        return None
    return float(-solved.fun) * total, DualWeights(per_second / norm, per_byte / norm)


def least_costs(seconds: FloatArray, weights: DualWeights) -> FloatArray:
    """f8[N]: min_k w_k seconds[n, k] of each op, what it takes at least of the weighted devices."""
    with np.errstate(invalid="ignore"):  # a weight of 0 times inf
        cost = np.where(np.isinf(seconds), np.inf, weights.per_second * seconds)
    return cost.min(axis=1)


def may_fit(load: Load) -> bool:
    """Whether the units' bytes may fit; False is proven by weights, as in the module's formula.

    For any m >= 0 a placement that fits has sum_u min_k m_k bytes[u] <= sum_k m_k room_k. Tried are
    the sets of classes that units may lie on, with m = 1 on the set (Hall's condition).
    """
    bytes_only = dataclasses.replace(load, seconds=np.where(np.isinf(load.seconds), np.inf, 0.0))
    for subset in np.unique(np.isfinite(load.seconds), axis=0):
        weights = DualWeights(np.zeros(len(load.slots)), subset.astype(np.float64))
        if dual_value(bytes_only, weights)[0] > 0.0:
            return False
    return True


# The window bound: ops that can't start early and leave much to do have to fit between.
#
# Let head[n] be the least seconds before the start of op n and tail[n] those after its end. In a
# step of T seconds the ops with head >= a and tail >= b run between a and T - b wherever they lie,
# so
#
#     T >= a + b + the load bound of these ops, for any a and b.


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
    is_empty = _sum_above(np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)) == 0
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
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, NUM_THRESHOLDS), method="lower"))


def _sum_above(table: np.ndarray) -> np.ndarray:
    """Each cell's sum over all cells that are not below it in either index."""
    return table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
