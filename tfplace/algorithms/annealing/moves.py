"""Random moves of a placement, compiled: the neighbours that annealing tries.

A move gives groups of ops other devices. Groups come from `Levels`, coarse to fine; kernels, pins
and colocation are kept, whatever is drawn. Each move notes what it changed, so that it can be taken
back without a copy of the placement.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.algorithms.annealing.levels import Levels

WordArray = npt.NDArray[np.uint64]

# Kinds of move.
#   FOLLOW    one end of an edge between devices goes where the other is: saves a transfer
#   PUT       a group goes to a random device
#   SWAP      two groups exchange devices: keeps the balance
#   RUN       neighbours in graph order go to one device
#   WINDOW    a part of a group goes to one device: a border inside the group is moved
#   CRITICAL  a group of the critical path goes to a device where it may end sooner
#   EXCHANGE  two devices exchange what they hold of a stretch of the graph
NUM_KINDS = 7
FOLLOW, PUT, SWAP, RUN, WINDOW, CRITICAL, EXCHANGE = range(NUM_KINDS)

# A draw may change nothing (a device that is not allowed, or the one it lies on); then it is drawn
# again, but not for ever: there may be nothing to change.
MAX_DRAWS = 20


class Position(NamedTuple):
    """A placement that moves change, and what drawing and taking back a move needs."""

    device_of_op: IntArray  # i4[N] the placement
    random: WordArray  # u8[2] state of the random generator
    changed_op: IntArray  # i4[2N] ops that the last move changed, in order; an op may come twice
    changed_from: IntArray  # i4[2N] the device of each of them before
    num_changed: LongArray  # i8[1] how many entries of these count
    critical: IntArray  # i4[N] ops of a critical path, last to first, without those of no time
    num_critical: LongArray  # i8[1] how many entries count; 0 where no path is known


def new_position(num_ops: int, seed: int) -> Position:
    """All ops on device 0."""
    return Position(
        device_of_op=np.zeros(num_ops, dtype=np.int32),
        random=np.random.default_rng(seed).integers(1, 2**63, size=2, dtype=np.uint64),
        changed_op=np.zeros(2 * num_ops, dtype=np.int32),
        changed_from=np.zeros(2 * num_ops, dtype=np.int32),
        num_changed=np.zeros(1, dtype=np.int64),
        critical=np.zeros(num_ops, dtype=np.int32),
        num_critical=np.zeros(1, dtype=np.int64),
    )


def bell(levels: Levels, focus: float, width: float) -> FloatArray:
    """f8[L]: how often each level is drawn, at most 1.

    Args:
      levels: L of them.
      focus: the level drawn most often, 0 for the coarsest to 1 for the finest.
      width: in levels.
    """
    num_levels = len(levels.free_row) - 1
    distance = np.arange(num_levels) - focus * (num_levels - 1)
    return np.exp(-((distance / width) ** 2))


def choice_limits(
    levels: Levels, level_weights: FloatArray, kind_weights: npt.ArrayLike
) -> FloatArray:
    """f8[L * K]: running sums of how often each kind of move is made on each level.

    Args:
      levels: L of them; one without a free group is never chosen.
      level_weights: f8[L].
      kind_weights: f8[K] in the order of the kinds.
    """
    has_free = np.diff(levels.free_row) > 0
    weights = (level_weights * has_free)[:, None] * np.asarray(kind_weights)
    return np.cumsum(weights.ravel())


@compiled_part
def make_move(levels: Levels, limits: FloatArray, position: Position) -> None:
    """Draws moves until one changes something, or many have not; it can be taken back.

    Args:
      limits: f8[L * K], see `choice_limits`.
    """
    position.num_changed[0] = 0
    for _ in range(MAX_DRAWS):
        _draw_move(levels, limits, position)
        if position.num_changed[0] > 0:
            return


@compiled_part
def take_back(position: Position) -> None:
    """Undoes the last move."""
    # Backwards: of an op that changed twice, the first entry has its old device.
    for number in range(position.num_changed[0] - 1, -1, -1):
        position.device_of_op[position.changed_op[number]] = position.changed_from[number]
    position.num_changed[0] = 0


@compiled
def fill_neighbours(
    levels: Levels, limits: FloatArray, position: Position, neighbours: IntArray
) -> None:
    """Writes placements that are each one move away into i4[B, N]; the position stays."""
    for row in range(len(neighbours)):
        make_move(levels, limits, position)
        for op in range(len(position.device_of_op)):
            neighbours[row, op] = position.device_of_op[op]
        take_back(position)


@compiled
def random_share(random: WordArray) -> float:
    """Uniform in [0, 1): xorshift128+ (Vigna 2017), as compiled code can't share NumPy's."""
    x = random[0]
    y = random[1]
    random[0] = y
    x ^= x << np.uint64(23)
    x = x ^ y ^ (x >> np.uint64(17)) ^ (y >> np.uint64(26))
    random[1] = x
    return np.float64((x + y) >> np.uint64(11)) * 1.1102230246251565e-16  # 53 bits, times 2**-53


@compiled_part
def _below(random: WordArray, count: int) -> int:
    return int(random_share(random) * count)


@compiled_part
def _draw_move(levels: Levels, limits: FloatArray, position: Position) -> None:
    """Makes one random move, which may change nothing."""
    wanted = random_share(position.random) * limits[len(limits) - 1]
    choice = 0
    while limits[choice] <= wanted:
        choice += 1
    level, kind = choice // NUM_KINDS, choice % NUM_KINDS
    if kind == FOLLOW:
        _follow(levels, position, level)
    elif kind == PUT:
        group = _draw_group(levels, position, level)
        _put(levels, position, group, _draw_device(levels, position, group))
    elif kind == SWAP:
        _swap(levels, position, level)
    elif kind == RUN:
        _run(levels, position, level)
    elif kind == WINDOW:
        _window(levels, position, level)
    elif kind == CRITICAL:
        _critical(levels, position, level)
    elif kind == EXCHANGE:
        _exchange(levels, position)


@compiled_part
def _put_op(position: Position, op: int, device: int) -> None:
    """Every change of the placement goes through here, so that all can be taken back."""
    old = position.device_of_op[op]
    if old != device:
        number = position.num_changed[0]
        position.changed_op[number] = op
        position.changed_from[number] = old
        position.num_changed[0] = number + 1
        position.device_of_op[op] = device


@compiled_part
def _put(levels: Levels, position: Position, group: int, device: int) -> None:
    if levels.allowed[group, device]:
        for index in range(levels.member_row[group], levels.member_row[group + 1]):
            _put_op(position, levels.member[index], device)


@compiled_part
def _put_unit(levels: Levels, position: Position, op: int, device: int) -> None:
    """Moves an op with its colocation group, for moves that cut through groups."""
    if levels.op_allowed[op, device]:
        unit = levels.unit_of_op[op]
        for index in range(levels.unit_row[unit], levels.unit_row[unit + 1]):
            _put_op(position, levels.unit_member[index], device)


@compiled_part
def _draw_group(levels: Levels, position: Position, level: int) -> int:
    first = levels.free_row[level]
    return levels.free[first + _below(position.random, levels.free_row[level + 1] - first)]


@compiled_part
def _where(levels: Levels, position: Position, group: int) -> int:
    """The device of a random member: moves on other levels may have split the group."""
    first = levels.member_row[group]
    count = levels.member_row[group + 1] - first
    return position.device_of_op[levels.member[first + _below(position.random, count)]]


@compiled_part
def _draw_device(levels: Levels, position: Position, group: int) -> int:
    num_devices = levels.device_limits.shape[1]
    wanted = random_share(position.random) * levels.device_limits[group, num_devices - 1]
    for device in range(num_devices):
        if wanted < levels.device_limits[group, device]:
            return device
    return num_devices - 1


@compiled_part
def _follow(levels: Levels, position: Position, level: int) -> None:
    first = levels.edge_row[level]
    count = levels.edge_row[level + 1] - first
    if count == 0:
        return
    for _ in range(MAX_DRAWS):
        edge = first + _below(position.random, count)
        source, target = levels.edge_source[edge], levels.edge_target[edge]
        from_device = _where(levels, position, source)
        to_device = _where(levels, position, target)
        if from_device != to_device:
            if random_share(position.random) < 0.5:
                _put(levels, position, source, to_device)
            else:
                _put(levels, position, target, from_device)
            return


@compiled_part
def _swap(levels: Levels, position: Position, level: int) -> None:
    one = _draw_group(levels, position, level)
    other = _draw_group(levels, position, level)
    here, there = _where(levels, position, one), _where(levels, position, other)
    if here != there:
        _put(levels, position, one, there)
        _put(levels, position, other, here)


@compiled_part
def _run(levels: Levels, position: Position, level: int) -> None:
    """Neighbours in graph order go to one device; half the time only those of one device."""
    first = levels.free_row[level]
    count = levels.free_row[level + 1] - first
    start = _below(position.random, count)
    # The logarithm of the length is uniform: short runs are drawn as often as long ones.
    length = int(np.exp(random_share(position.random) * np.log(max(count / 2.0, 2.0)))) + 1
    group = levels.free[first + start]
    device = _draw_device(levels, position, group)
    source = -1
    if random_share(position.random) < 0.5:
        source = _where(levels, position, group)
    for place in range(start, min(start + length, count)):
        group = levels.free[first + place]
        if source < 0 or _where(levels, position, group) == source:
            _put(levels, position, group, device)


@compiled_part
def _window(levels: Levels, position: Position, level: int) -> None:
    """The ops of a group within a stretch of the graph order go to one device."""
    group = _draw_group(levels, position, level)
    row = levels.member_row[group]
    size = levels.member_row[group + 1] - row
    device = _draw_device(levels, position, group)
    start = _below(position.random, size)
    length = int(np.exp(random_share(position.random) * np.log(size + 1.0)))
    for index in range(row + start, row + min(start + length, size)):
        _put_unit(levels, position, levels.member[index], device)


@compiled_part
def _exchange(levels: Levels, position: Position) -> None:
    """Two devices exchange what they hold of a stretch of the graph order, on whatever level."""
    num_ops = len(position.device_of_op)
    start = _below(position.random, num_ops)
    length = int(np.exp(random_share(position.random) * np.log(num_ops + 1.0)))
    one = position.device_of_op[start]
    other = _below(position.random, levels.allowed.shape[1])
    if one == other:
        return
    for op in range(start, min(start + length, num_ops)):
        unit = levels.unit_of_op[op]
        # Once for each colocation unit, at its first op: a second time would move it back.
        if levels.unit_member[levels.unit_row[unit]] == op:
            if position.device_of_op[op] == one:
                _put_unit(levels, position, op, other)
            elif position.device_of_op[op] == other:
                _put_unit(levels, position, op, one)


@compiled_part
def _critical(levels: Levels, position: Position, level: int) -> None:
    """A group of the critical path goes to a random device, or where its neighbour on it is."""
    count = position.num_critical[0]
    if count < 2:
        return
    place = _below(position.random, count)
    op = position.critical[place]
    group = levels.group_of_op[level, op]
    kind = random_share(position.random)
    if kind < 0.5:
        # The nearest op before or behind it on the path that lies on another device.
        step = 1 if kind < 0.25 else -1
        here = position.device_of_op[op]
        while 0 <= place < count and position.device_of_op[position.critical[place]] == here:
            place += step
        if 0 <= place < count:
            _put(levels, position, group, position.device_of_op[position.critical[place]])
    else:
        _put(levels, position, group, _draw_device(levels, position, group))
