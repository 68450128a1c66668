"""One chain of simulated annealing, compiled: draws moves, simulates, accepts or takes back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.algorithms.annealing.levels import Levels
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import Scratch

WordArray = npt.NDArray[np.uint64]

# Kinds of move.
NUM_KINDS = 7
FOLLOW, PUT, SWAP, RUN, WINDOW, CRITICAL, EXCHANGE = range(NUM_KINDS)

# Positions in ChainState.energy and .feasible.
CURRENT, BEST = range(2)

# How often to draw again when a draw changes nothing.
_MAX_DRAWS = 20

# An infeasible placement counts as this many times its step time, at least.
_INFEASIBLE = 2.0


class ChainState(NamedTuple):
    """Where a chain is.

    Attributes:
      device_of_op, best: i4[N] the current and the best placement.
      energy: f8[2] of both: step seconds, more where memory lacks.
      feasible: i8[2] of both, 0 or 1.
      memory_binds: i8[1] 1 once a placement did not fit: until then only new bests are checked.
      random: u8[2] of the generator.
      changed_op, changed_from: i4[2N] what the last move changed, in order; num_changed: i8[1].
      critical: i4[N] ops of a critical path of the current placement, last to first, without
        those of no time; num_critical: i8[1].
    """

    device_of_op: IntArray
    best: IntArray
    energy: FloatArray
    feasible: LongArray
    memory_binds: LongArray
    random: WordArray
    changed_op: IntArray
    changed_from: IntArray
    num_changed: LongArray
    critical: IntArray
    num_critical: LongArray


class ChainConfig(NamedTuple):
    """What stays the same during a stretch.

    Attributes:
      choice_limits: f8[L * K] running sums of the weights of each level's kinds of move.
      usable: f8[D] bytes.
      overflow_weight: what a device's worth of missing memory adds, in step times.
      temperature: as a share of the step time.
    """

    choice_limits: FloatArray
    usable: FloatArray
    overflow_weight: float
    temperature: float


@compiled
def _next(random: WordArray) -> float:
    """Uniform in [0, 1): xorshift128+."""
    x = random[0]
    y = random[1]
    random[0] = y
    x ^= x << np.uint64(23)
    x = x ^ y ^ (x >> np.uint64(17)) ^ (y >> np.uint64(26))
    random[1] = x
    return np.float64((x + y) >> np.uint64(11)) * 1.1102230246251565e-16


@compiled
def _below(random: WordArray, count: int) -> int:
    return int(_next(random) * count)


@compiled
def _put_op(levels: Levels, state: ChainState, op: int, device: int) -> None:
    old = state.device_of_op[op]
    if old != device:
        number = state.num_changed[0]
        state.changed_op[number] = op
        state.changed_from[number] = old
        state.num_changed[0] = number + 1
        state.device_of_op[op] = device


@compiled
def _put(levels: Levels, state: ChainState, group: int, device: int) -> None:
    if levels.allowed[group, device]:
        for index in range(levels.member_row[group], levels.member_row[group + 1]):
            _put_op(levels, state, levels.member[index], device)


@compiled
def _put_unit(levels: Levels, state: ChainState, op: int, device: int) -> None:
    if levels.op_allowed[op, device]:
        unit = levels.unit_of_op[op]
        for index in range(levels.unit_row[unit], levels.unit_row[unit + 1]):
            _put_op(levels, state, levels.unit_member[index], device)


@compiled
def _where(levels: Levels, state: ChainState, group: int) -> int:
    """The device of a random member."""
    first = levels.member_row[group]
    count = levels.member_row[group + 1] - first
    return state.device_of_op[levels.member[first + _below(state.random, count)]]


@compiled
def _draw_device(levels: Levels, state: ChainState, group: int) -> int:
    num_devices = levels.device_limits.shape[1]
    wanted = _next(state.random) * levels.device_limits[group, num_devices - 1]
    for device in range(num_devices):
        if wanted < levels.device_limits[group, device]:
            return device
    return num_devices - 1


@compiled
def _follow(levels: Levels, state: ChainState, level: int) -> None:
    first = levels.edge_row[level]
    count = levels.edge_row[level + 1] - first
    if count == 0:
        return
    for _ in range(_MAX_DRAWS):
        edge = first + _below(state.random, count)
        source, target = levels.edge_source[edge], levels.edge_target[edge]
        from_device = _where(levels, state, source)
        to_device = _where(levels, state, target)
        if from_device != to_device:
            if _next(state.random) < 0.5:
                _put(levels, state, source, to_device)
            else:
                _put(levels, state, target, from_device)
            return


@compiled
def _run(levels: Levels, state: ChainState, level: int) -> None:
    """Neighbours in graph order go to one device; half the time only those of one device."""
    first = levels.free_row[level]
    count = levels.free_row[level + 1] - first
    start = _below(state.random, count)
    # Short runs as often as long ones.
    length = int(np.exp(_next(state.random) * np.log(max(count / 2.0, 2.0)))) + 1
    group = levels.free[first + start]
    device = _draw_device(levels, state, group)
    source = -1
    if _next(state.random) < 0.5:
        source = _where(levels, state, group)
    for position in range(start, min(start + length, count)):
        group = levels.free[first + position]
        if source < 0 or _where(levels, state, group) == source:
            _put(levels, state, group, device)


@compiled
def _window(levels: Levels, state: ChainState, level: int) -> None:
    """The ops of a group within a stretch of the graph order go to one device."""
    first = levels.free_row[level]
    count = levels.free_row[level + 1] - first
    group = levels.free[first + _below(state.random, count)]
    row = levels.member_row[group]
    size = levels.member_row[group + 1] - row
    device = _draw_device(levels, state, group)
    start = _below(state.random, size)
    length = int(np.exp(_next(state.random) * np.log(size + 1.0)))
    for index in range(row + start, row + min(start + length, size)):
        _put_unit(levels, state, levels.member[index], device)


@compiled
def _exchange(levels: Levels, state: ChainState) -> None:
    """Two devices exchange what they hold of a stretch of the graph order."""
    num_ops = len(state.device_of_op)
    start = _below(state.random, num_ops)
    length = int(np.exp(_next(state.random) * np.log(num_ops + 1.0)))
    one = state.device_of_op[start]
    other = _below(state.random, levels.allowed.shape[1])
    if one == other:
        return
    for op in range(start, min(start + length, num_ops)):
        unit = levels.unit_of_op[op]
        if levels.unit_member[levels.unit_row[unit]] == op:
            if state.device_of_op[op] == one:
                _put_unit(levels, state, op, other)
            elif state.device_of_op[op] == other:
                _put_unit(levels, state, op, one)


@compiled
def _critical(levels: Levels, state: ChainState, level: int) -> None:
    """A group of the critical path goes to a random device, or where its neighbour on it is."""
    count = state.num_critical[0]
    if count < 2:
        return
    position = _below(state.random, count)
    op = state.critical[position]
    group = levels.group_of_op[level, op]
    kind = _next(state.random)
    if kind < 0.5:
        step = 1 if kind < 0.25 else -1
        here = state.device_of_op[op]
        while 0 <= position < count and state.device_of_op[state.critical[position]] == here:
            position += step
        if 0 <= position < count:
            _put(levels, state, group, state.device_of_op[state.critical[position]])
    else:
        _put(levels, state, group, _draw_device(levels, state, group))


@compiled
def _trace(arrays: SimulationArrays, scratch: Scratch, state: ChainState) -> None:
    """Ops of a critical path of the run in scratch, last to first, without those of no time."""
    num_ops = len(state.device_of_op)
    last = 0
    for op in range(num_ops):
        if scratch.op_end[op] > scratch.op_end[last]:
            last = op
    count = 0
    op = last
    while op >= 0:
        if scratch.op_end[op] > scratch.op_start[op]:
            state.critical[count] = op
            count += 1
        start = scratch.op_start[op]
        # The latest of its inputs, else what ran before it on the device.
        latest, cause = -1.0, -1
        for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
            tensor = arrays.input_tensor[index]
            producer = arrays.producer[tensor]
            there = scratch.op_end[producer]
            source = state.device_of_op[producer]
            device = state.device_of_op[op]
            if source != device:
                there += (
                    arrays.tensor_bytes[tensor] / arrays.bandwidth[source, device]
                    + arrays.latency[source, device]
                )
            if there > latest:
                latest, cause = there, producer
        if start == 0.0:
            break
        before = scratch.before[op]
        if before >= 0 and (cause < 0 or scratch.op_end[before] == start):
            cause = before
        op = cause
    state.num_critical[0] = count


@compiled
def _move(levels: Levels, config: ChainConfig, state: ChainState) -> None:
    """Makes a random move, which may change nothing."""
    num_choices = len(config.choice_limits)
    wanted = _next(state.random) * config.choice_limits[num_choices - 1]
    choice = 0
    while config.choice_limits[choice] <= wanted:
        choice += 1
    level, kind = choice // NUM_KINDS, choice % NUM_KINDS
    first = levels.free_row[level]
    count = levels.free_row[level + 1] - first
    if kind == FOLLOW:
        _follow(levels, state, level)
    elif kind == PUT:
        group = levels.free[first + _below(state.random, count)]
        _put(levels, state, group, _draw_device(levels, state, group))
    elif kind == SWAP:
        one = levels.free[first + _below(state.random, count)]
        other = levels.free[first + _below(state.random, count)]
        here, there = _where(levels, state, one), _where(levels, state, other)
        if here != there:
            _put(levels, state, one, there)
            _put(levels, state, other, here)
    elif kind == RUN:
        _run(levels, state, level)
    elif kind == WINDOW:
        _window(levels, state, level)
    elif kind == CRITICAL:
        _critical(levels, state, level)
    elif kind == EXCHANGE:
        _exchange(levels, state)


@compiled
def _take_back(state: ChainState) -> None:
    """Undoes the last move."""
    for number in range(state.num_changed[0] - 1, -1, -1):
        state.device_of_op[state.changed_op[number]] = state.changed_from[number]
    state.num_changed[0] = 0


@compiled
def _overflow(scratch: Scratch, usable: FloatArray) -> float:
    """Devices' worth of missing memory after a tracked run."""
    lacking = 0.0
    for device in range(len(usable)):
        lacking += max(scratch.peak[device] - usable[device], 0.0) / max(usable[device], 1.0)
    return lacking


@compiled
def anneal(
    arrays: SimulationArrays,
    timing: Scratch,
    full: Scratch,
    levels: Levels,
    config: ChainConfig,
    state: ChainState,
    num_trials: int,
) -> None:
    """A stretch of the chain at one temperature: Metropolis's rule on the ratio of energies.

    The threshold is drawn before the simulation, which is given up once it can't be met. Memory
    is simulated only where it matters: for new bests, and for whatever would be accepted once a
    placement was found not to fit.

    Args:
      arrays: the problem.
      timing, full: scratch of its own, without and with memory.
      levels: what moves as one.
      config: how.
      state: goes on from there.
      num_trials: moves to try.
    """
    for _ in range(num_trials):
        state.num_changed[0] = 0
        for _draw in range(_MAX_DRAWS):
            _move(levels, config, state)
            if state.num_changed[0] > 0:
                break
        limit = state.energy[CURRENT] * (1.0 - _next(state.random)) ** -config.temperature
        if state.feasible[CURRENT]:
            makespan = simulate(arrays, timing, state.device_of_op, limit)
            if not makespan <= limit:
                _take_back(state)
                continue
            if not state.memory_binds[0] and makespan >= state.energy[BEST]:
                _accept(arrays, timing, state, makespan, 1)
                continue
        makespan = simulate(arrays, full, state.device_of_op)
        lacking = _overflow(full, config.usable)
        energy = makespan
        if lacking > 0.0:
            state.memory_binds[0] = 1
            energy *= _INFEASIBLE + config.overflow_weight * lacking
        if not energy <= limit:
            _take_back(state)
            continue
        _accept(arrays, full, state, energy, 1 if lacking == 0.0 else 0)
        _keep_best(state)


@compiled
def _accept(
    arrays: SimulationArrays, scratch: Scratch, state: ChainState, energy: float, feasible: int
) -> None:
    """The placement becomes the current one; scratch holds its run."""
    state.energy[CURRENT] = energy
    state.feasible[CURRENT] = feasible
    _trace(arrays, scratch, state)


@compiled
def _keep_best(state: ChainState) -> None:
    """Any feasible placement is better than any other; else energy decides."""
    if state.feasible[CURRENT] < state.feasible[BEST]:
        return
    if state.feasible[CURRENT] > state.feasible[BEST] or state.energy[CURRENT] < state.energy[BEST]:
        state.energy[BEST] = state.energy[CURRENT]
        state.feasible[BEST] = state.feasible[CURRENT]
        for op in range(len(state.best)):
            state.best[op] = state.device_of_op[op]


def new_chain(num_ops: int, seed: int) -> ChainState:
    """A chain without a placement."""
    words = np.random.default_rng(seed).integers(1, 2**63, size=2, dtype=np.uint64)
    return ChainState(
        device_of_op=np.zeros(num_ops, dtype=np.int32),
        best=np.zeros(num_ops, dtype=np.int32),
        energy=np.full(2, np.inf),
        feasible=np.zeros(2, dtype=np.int64),
        memory_binds=np.zeros(1, dtype=np.int64),
        random=words,
        changed_op=np.zeros(2 * num_ops, dtype=np.int32),
        changed_from=np.zeros(2 * num_ops, dtype=np.int32),
        num_changed=np.zeros(1, dtype=np.int64),
        critical=np.zeros(num_ops, dtype=np.int32),
        num_critical=np.zeros(1, dtype=np.int64),
    )
