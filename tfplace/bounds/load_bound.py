"""How much work there is for the devices there are: a linear program, proven by its dual.

Placed units x (each on one device) need a step of T seconds with, for each class k of devices,
sum_u seconds[u, k] x[u, k] <= T slots_k count_k and sum_u bytes[u] x[u, k] <= room_k. For any
weights w, m >= 0 with sum_k w_k slots_k count_k = 1 the weighted sum of these is

    T >= sum_u min_k (w_k seconds[u, k] + m_k bytes[u]) - sum_k m_k room_k,

which holds whatever gave the weights: HiGHS only proposes them (Kelley's cutting planes), the
right-hand side is summed up afterwards. No tolerance of a solver enters.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.optimize import linprog

from graphs.op_graph import FloatArray
from tfplace.bounds.relaxation import DeviceClasses
from tfplace.grouping.quotient import BoolArray

MAX_CUTS = 40

# The cutting planes stop when they can't raise the bound by more than this share of it.
TOLERANCE = 1e-4

# Bytes may cost so many times what all seconds together, spread over the room, would say.
MAX_BYTE_WEIGHT = 100.0

# So many thresholds on each side of the windows.
NUM_THRESHOLDS = 256


@dataclasses.dataclass(frozen=True)
class Work:
    """What has to be done somewhere.

    Attributes:
      seconds: f8[U, K] of each unit on each class; inf where it may not lie.
      bytes: f8[U] persistent.
      slots: f8[K] of all devices of a class together.
      room_bytes: f8[K].
    """

    seconds: FloatArray
    bytes: FloatArray
    slots: FloatArray
    room_bytes: FloatArray


@dataclasses.dataclass(frozen=True)
class Weights:
    """Attributes: device: f8[K] per second, byte: f8[K] per byte; see the module's formula."""

    device: FloatArray
    byte: FloatArray


def work_of(
    classes: DeviceClasses, unit_of_op: np.ndarray, op_bytes: FloatArray, inside: BoolArray
) -> Work:
    """The work of the ops bool[N] that are `inside`; all ops' bytes.

    Args:
      classes: seconds of ops.
      unit_of_op: int[N] colocation units.
      op_bytes: f8[N] persistent.
      inside: which ops' seconds count; the others' devices still do.
    """
    num_units = int(unit_of_op.max(initial=-1)) + 1
    columns = []
    for column in classes.seconds.T:
        counted = np.where(inside | np.isinf(column), column, 0.0)
        columns.append(_sums(unit_of_op, counted, num_units))
    return Work(
        seconds=np.stack(columns, axis=1),
        bytes=_sums(unit_of_op, op_bytes, num_units),
        slots=classes.slots * classes.num_devices,
        room_bytes=classes.room_bytes,
    )


def dual_value(work: Work, weights: Weights) -> tuple[float, FloatArray, FloatArray]:
    """The module's right-hand side; the seconds and bytes that its minima put on each class."""
    with np.errstate(invalid="ignore"):  # a weight of 0 times inf
        cost = weights.device * work.seconds + weights.byte * work.bytes[:, None]
    cost[np.isinf(work.seconds)] = np.inf
    chosen = cost.argmin(axis=1)
    units = np.arange(len(chosen))
    num_classes = len(work.slots)
    seconds = _sums(chosen, work.seconds[units, chosen], num_classes)
    size = _sums(chosen, work.bytes, num_classes)
    value = float(cost[units, chosen].sum() - (weights.byte * work.room_bytes).sum())
    return value, seconds, size


def _sums(owner: np.ndarray, amounts: FloatArray, size: int) -> FloatArray:
    """f8[size]: the sum of each owner's amounts."""
    sums: FloatArray = np.bincount(owner, weights=amounts, minlength=size).astype(np.float64)
    return sums


def best_weights(work: Work, max_cuts: int = MAX_CUTS) -> tuple[float, list[Weights]]:
    """The best bound found, in seconds, and all weights tried on the way, the best ones first."""
    total = float(work.seconds[np.isfinite(work.seconds)].sum())
    most = MAX_BYTE_WEIGHT * total / max(float(work.room_bytes.min()), 1.0)
    num_classes = len(work.slots)
    even = Weights(np.full(num_classes, 1.0 / work.slots.sum()), np.zeros(num_classes))
    tried: list[tuple[float, Weights]] = []
    cuts: list[FloatArray] = []
    weights = even
    for _ in range(max_cuts):
        value, seconds, size = dual_value(work, weights)
        tried.append((value, weights))
        cuts.append(np.concatenate([seconds, size - work.room_bytes]))
        proposed = _next_weights(cuts, work, total, most)
        if proposed is None:
            break
        limit, weights = proposed
        best = max(value for value, _ in tried)
        if limit <= best + TOLERANCE * abs(best):
            break
    tried.sort(key=lambda pair: -pair[0])
    return tried[0][0], [weights for _, weights in tried]


def _next_weights(
    cuts: list[FloatArray], work: Work, total: float, most: float
) -> tuple[float, Weights] | None:
    """The highest point under all cuts: its height and weights; None where HiGHS finds none.

    Scaled to numbers around 1: seconds by `total`, byte weights by `most`.
    """
    num_classes = len(work.slots)
    scale = np.concatenate([np.full(num_classes, 1.0), np.full(num_classes, most)])
    rows = np.array(cuts) * scale / max(total, 1e-300)
    solved = linprog(
        c=np.concatenate([np.zeros(2 * num_classes), [-1.0]]),
        A_ub=np.hstack([-rows, np.ones((len(rows), 1))]),
        b_ub=np.zeros(len(rows)),
        A_eq=np.concatenate([work.slots, np.zeros(num_classes + 1)])[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * num_classes + [(0.0, 1.0)] * num_classes + [(None, None)],
        method="highs",
    )
    if solved.x is None:
        return None
    device = np.maximum(solved.x[:num_classes], 0.0)
    byte = np.maximum(solved.x[num_classes : 2 * num_classes], 0.0) * most
    # What the solver calls 1 is made exactly 1; any nonnegative weights are then valid.
    norm = float((device * work.slots).sum())
    if norm <= 0.0:
        return None
    return float(-solved.fun) * total, Weights(device / norm, byte / norm)


def best_window(
    classes: DeviceClasses, head: FloatArray, tail: FloatArray, weights: list[Weights]
) -> tuple[float, float, float]:
    """The window into which most work has to fit.

    Ops with head >= a and tail >= b run between a and T - b, so T >= a + b + their work's bound.

    Args:
      classes: seconds of ops.
      head, tail: f8[N] least seconds before an op's start and after its end.
      weights: each is tried on all pairs of thresholds.

    Returns:
      The bound, a and b.
    """
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


def least_costs(seconds: FloatArray, weights: Weights) -> FloatArray:
    """f8[N]: what each op with seconds f8[N, K] takes at least of the weighted devices."""
    with np.errstate(invalid="ignore"):  # a weight of 0 times inf
        cost = np.where(np.isinf(seconds), np.inf, weights.device * seconds)
    least: FloatArray = cost.min(axis=1)
    return least


def _thresholds(values: FloatArray) -> FloatArray:
    """Some of the values, ascending, the least among them."""
    shares = np.linspace(0.0, 1.0, NUM_THRESHOLDS)
    return np.unique(np.quantile(values, shares, method="lower"))


def _sum_above(table: np.ndarray) -> np.ndarray:
    """Each cell's sum over all cells that are not below it in either index."""
    summed: np.ndarray = table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    return summed


def fits(work: Work) -> bool:
    """Whether the units' bytes may fit; False is proven by weights, as in the module's formula.

    For any m >= 0: sum_u min_k m_k bytes[u] <= sum_k m_k room_k, or nothing fits.
    """
    bytes_only = dataclasses.replace(work, seconds=np.where(np.isinf(work.seconds), np.inf, 0.0))
    allowed_sets = np.unique(np.isfinite(work.seconds), axis=0)
    for subset in allowed_sets:  # Hall's condition on the sets of classes that units ask for
        weights = Weights(np.zeros(len(work.slots)), subset.astype(np.float64))
        if dual_value(bytes_only, weights)[0] > 0.0:
            return False
    return True
