"""One chain of annealing on one problem, with the memory that its simulations need."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.algorithms.annealing.annealing_problem import AnnealingProblem, Energy, memory_penalty
from tfplace.algorithms.annealing.config import AnnealingConfig
from tfplace.algorithms.annealing.levels import Levels
from tfplace.algorithms.annealing.moves import (
    Position,
    bell,
    choice_limits,
    make_move,
    new_position,
    random_share,
    take_back,
)
from tfplace.search.kept.snapshot import Snapshot
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import Scratch, new_scratch, timing_scratch


class Phase(NamedTuple):
    """How a chain goes on for a while."""

    focus: float  # the level drawn most often, 0 for the coarsest to 1 for the finest
    temperature: float  # as a share of the step time
    num_trials: int  # moves to try


class Chain:
    """A placement that is annealed, its levels and its scratch; one thread at a time."""

    def __init__(self, problem: AnnealingProblem, seed: int, config: AnnealingConfig) -> None:
        """A chain without placement and levels, which `begin` gives it."""
        self._problem = problem
        self._config = config
        self._timing = timing_scratch(problem.arrays)
        self._full = new_scratch(problem.arrays)
        self._state = new_chain(problem.problem.num_ops, seed)
        self._levels: Levels | None = None

    @property
    def current_energy(self) -> Energy:
        return self._energy(CURRENT)

    @property
    def best_energy(self) -> Energy:
        return self._energy(BEST)

    def best(self) -> IntArray:
        """i4[N], a copy."""
        return self._state.best.copy()

    def state(self) -> Snapshot:
        """Copies of all that its next moves depend on, but for the levels."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def set_state(self, state: Mapping[str, np.ndarray], levels: Levels) -> None:
        """Goes on where `state` was taken; ValueError if that was another problem's."""
        self._levels = levels
        for name, array in self._arrays().items():
            if state[name].shape != array.shape:
                raise ValueError(f"{name} has shape {state[name].shape}, wanted {array.shape}")
            array[...] = state[name]

    def begin(self, levels: Levels, device_of_op: IntArray, energy: Energy) -> None:
        """Goes on from a placement i4[N], which is the best now, with other levels."""
        self._levels = levels
        self._set_current(device_of_op, energy)
        state = self._state
        state.best[:] = device_of_op
        state.energy[BEST], state.feasible[BEST] = energy.seconds, not energy.is_infeasible

    def copy_current(self, other: "Chain") -> None:
        """Goes on from where another chain is."""
        self._set_current(other._state.position.device_of_op, other.current_energy)

    def run(self, phase: Phase) -> None:
        """Tries the moves of a phase."""
        assert self._levels is not None
        weights = bell(self._levels, phase.focus, self._config.focus)
        config = ChainConfig(
            choice_limits(self._levels, weights, self._config.kind_weights),
            self._problem.usable,
            self._config.overflow_weight,
            phase.temperature,
        )
        arrays, timing, full = self._problem.arrays, self._timing, self._full
        anneal(arrays, timing, full, self._levels, config, self._state, phase.num_trials)

    def _arrays(self) -> dict[str, np.ndarray]:
        state = self._state
        return {
            **state.position._asdict(),
            "best": state.best,
            "energy": state.energy,
            "feasible": state.feasible,
            "memory_binds": state.memory_binds,
        }

    def _energy(self, which: int) -> Energy:
        return Energy(not self._state.feasible[which], float(self._state.energy[which]))

    def _set_current(self, device_of_op: IntArray, energy: Energy) -> None:
        state = self._state
        state.position.device_of_op[:] = device_of_op
        state.position.num_critical[0] = 0  # the path was another placement's
        state.energy[CURRENT], state.feasible[CURRENT] = energy.seconds, not energy.is_infeasible


# Positions in ChainState.energy and .feasible.
CURRENT, BEST = range(2)


class ChainState(NamedTuple):
    """Where a chain is."""

    position: Position  # the current placement
    best: IntArray  # i4[N] the best placement since the chain began
    energy: FloatArray  # f8[2] seconds of both energies, at CURRENT and BEST
    feasible: LongArray  # i8[2] of both, 0 or 1
    memory_binds: LongArray  # i8[1] 1 once a placement did not fit


class ChainConfig(NamedTuple):
    """What stays the same during a phase."""

    choice_limits: FloatArray  # f8[L * K], see `moves.choice_limits`
    usable: FloatArray  # f8[D] bytes
    overflow_weight: float  # see `energy.memory_penalty`
    temperature: float  # as a share of the step time


def new_chain(num_ops: int, seed: int) -> ChainState:
    """A chain without a placement."""
    return ChainState(
        position=new_position(num_ops, seed),
        best=np.zeros(num_ops, dtype=np.int32),
        energy=np.full(2, np.inf),
        feasible=np.zeros(2, dtype=np.int64),
        memory_binds=np.zeros(1, dtype=np.int64),
    )


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
    """A phase of the chain at one temperature: Metropolis's rule on the ratio of energies.

    Args:
      timing: scratch of its own for runs of which only the time counts.
      full: scratch of its own for runs that track memory, which take about half as long again.
      levels: what moves as one.
      state: goes on from there.
      num_trials: moves to try.
    """
    position = state.position
    for _ in range(num_trials):
        make_move(levels, config.choice_limits, position)
        # A move is accepted with the chance (new / old) ** (-1 / temperature). Drawing first turns
        # that into a limit for the new energy, at which the simulation can be given up.
        chance = 1.0 - random_share(position.random)
        limit = state.energy[CURRENT] * chance**-config.temperature
        if state.feasible[CURRENT]:
            # Tracking memory slows a run down, so it is put off until the time alone is good
            # enough. A placement that does not fit is never better than its time says.
            makespan = simulate(arrays, timing, position.device_of_op, limit)
            if not makespan <= limit:
                take_back(position)
                continue
            # Where no placement has lacked memory yet, only new bests are checked.
            is_best = makespan < state.energy[BEST]
            if not is_best and not state.memory_binds[0]:
                _accept(arrays, timing, state, makespan, 1)
                continue
        makespan = simulate(arrays, full, position.device_of_op, np.inf)
        penalty = memory_penalty(full.peak, config.usable, config.overflow_weight)
        if penalty > 1.0:
            state.memory_binds[0] = 1
        if not makespan * penalty <= limit:
            take_back(position)
            continue
        _accept(arrays, full, state, makespan * penalty, 1 if penalty == 1.0 else 0)
        _keep_best(state)


@compiled_part
def _accept(
    arrays: SimulationArrays, scratch: Scratch, state: ChainState, energy: float, feasible: int
) -> None:
    """The placement becomes the current one; scratch holds its run."""
    state.energy[CURRENT] = energy
    state.feasible[CURRENT] = feasible
    trace_critical_path(arrays, scratch, state.position)


@compiled_part
def _keep_best(state: ChainState) -> None:
    """Any feasible placement is better than any other; else energy decides."""
    if state.feasible[CURRENT] < state.feasible[BEST]:
        return
    if state.feasible[CURRENT] > state.feasible[BEST] or state.energy[CURRENT] < state.energy[BEST]:
        state.energy[BEST] = state.energy[CURRENT]
        state.feasible[BEST] = state.feasible[CURRENT]
        for op in range(len(state.best)):
            state.best[op] = state.position.device_of_op[op]


@compiled_part
def trace_critical_path(arrays: SimulationArrays, scratch: Scratch, position: Position) -> None:
    """Follows the causes of the last op's start back to the start of the run.

    What held an op up is its latest input, or the op that ran before it on its device where that
    ended just then. A transfer's wait for a channel is not followed: the path only says where
    moves are worth trying.

    Args:
      scratch: holds the run of the position's placement.
      position: takes the path, without ops of no time.
    """
    num_ops = len(position.device_of_op)
    last = 0
    for op in range(num_ops):
        if scratch.op_end[op] > scratch.op_end[last]:
            last = op
    count = 0
    op = last
    while op >= 0:
        start = scratch.op_start[op]
        if scratch.op_end[op] > start:
            position.critical[count] = op
            count += 1
        if start == 0.0:
            break
        cause = _latest_input(arrays, scratch, position, op)
        before = scratch.before[op]
        if before >= 0 and (cause < 0 or scratch.op_end[before] == start):
            cause = before
        op = cause
    position.num_critical[0] = count


@compiled_part
def _latest_input(arrays: SimulationArrays, scratch: Scratch, position: Position, op: int) -> int:
    """The op whose tensor comes last, if no transfer waits for a channel; -1 without inputs."""
    device = position.device_of_op[op]
    latest, cause = -1.0, -1
    for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
        tensor = arrays.input_tensor[index]
        producer = arrays.producer[tensor]
        source = position.device_of_op[producer]
        there = scratch.op_end[producer]
        if source != device:
            there += (
                arrays.tensor_bytes[tensor] / arrays.bandwidth[source, device]
                + arrays.latency[source, device]
            )
        if there > latest:
            latest, cause = there, producer
    return cause
