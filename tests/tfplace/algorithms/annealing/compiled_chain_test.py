"""Tests of tfplace.algorithms.annealing.chain, and of the simulator's limit it uses."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Machine, Op, build_problem, random_executor, random_problem
from tests.reference_simulator import reference_run
from tfplace.algorithms.annealing.annealing_problem import memory_penalty
from tfplace.algorithms.annealing.chain import (
    BEST,
    CURRENT,
    ChainConfig,
    anneal,
    new_chain,
    trace_critical_path,
)
from tfplace.algorithms.annealing.levels import coarse_to_fine, levels_of
from tfplace.algorithms.annealing.moves import NUM_KINDS, choice_limits
from tfplace.grouping.quotient import colocation_units
from tfplace.simulation.arrays import simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import new_scratch, timing_scratch


def _least_makespan(problem, device_of_op):
    """What no run can beat: the longest path with moves on idle links, and the fullest device."""
    graph, device = problem.graph, device_of_op
    tail = [0.0] * problem.num_ops
    work = np.zeros(problem.num_devices)
    for op in reversed(range(problem.num_ops)):
        after = 0.0
        for tensor, user in zip(graph.use_tensor, graph.use_op, strict=True):
            if graph.tensor_producer[tensor] == op:
                link = device[op], device[user]
                move = 0.0
                if link[0] != link[1]:
                    move = graph.tensor_bytes[tensor] / problem.link_bytes_per_second[link]
                    move += problem.link_latency[link]
                after = max(after, move + tail[user])
        seconds = problem.op_seconds[op, device[op]]
        tail[op] = seconds + after
        work[device[op]] += seconds
    return max(*tail, *(work / problem.device_slots), 0.0)


def test_runs_with_a_limit_are_exact_or_given_up_with_reason():
    rng = np.random.default_rng(3)
    num_given_up = 0
    for _ in range(60):
        problem = random_problem(rng)
        placement = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
        arrays = simulation_arrays(problem)
        timing = timing_scratch(arrays)
        wanted, _ = reference_run(problem, placement.tolist())
        assert simulate(arrays, timing, placement, np.inf) == wanted
        # A hair above, since a sum of seconds in another order is another sum.
        assert simulate(arrays, timing, placement, wanted * (1 + 1e-12)) == wanted
        least = _least_makespan(problem, placement)
        assert least <= wanted * (1 + 1e-12)
        if least > 0.0:
            assert simulate(arrays, timing, placement, least * (1 - 1e-9)) == np.inf
            num_given_up += 1
        # In between it may go on to the end, but what it says then is right.
        between = simulate(arrays, timing, placement, (least + wanted) / 2)
        assert between in (wanted, np.inf)
    assert num_given_up > 30


def test_a_run_is_given_up_once_what_has_started_can_not_end_in_time():
    # By path and work 5 s, but last's second input waits behind another on the one way to it.
    ops = [
        Op("a", 1.0, outputs=(3,)),
        Op("b", 0.0, ("a:0",), outputs=(3,)),
        Op("last", 1.0, ("a:0", "b:0"), pin=1),
    ]
    problem = build_problem(ops, Machine(2))
    arrays = simulation_arrays(problem)
    timing = timing_scratch(arrays)
    placement = np.array([0, 0, 1], dtype=np.int32)
    assert _least_makespan(problem, placement) == 5.0
    assert simulate(arrays, timing, placement, np.inf) == 8.0
    assert simulate(arrays, timing, placement, 7.9) == np.inf
    assert simulate(arrays, timing, placement, 8.0) == 8.0


def test_a_critical_path_goes_back_through_transfers_and_busy_devices():
    ops = [
        Op("start", 1.0, outputs=(4,)),
        Op("busy", 9.0, pin=1),
        Op("wait", 1.0, ("start:0",)),
        Op("last", 1.0, ("wait:0",)),
        Op("other", 2.0, ("start:0",)),
    ]
    arrays = simulation_arrays(build_problem(ops, Machine(2)))
    scratch = new_scratch(arrays)
    position = new_chain(5, 0).position
    position.device_of_op[:] = [0, 1, 1, 0, 0]
    assert simulate(arrays, scratch, position.device_of_op, np.inf) == 11.0
    trace_critical_path(arrays, scratch, position)
    # start's copy is there at 5 s; wait starts at 9 s, when busy has ended.
    assert position.critical[: position.num_critical[0]].tolist() == [3, 2, 1]


class _Annealed:
    """A chain on a problem, from a random placement."""

    def __init__(self, problem, seed, temperature=0.05, memory_weight=10.0):
        self.problem = problem
        self.arrays = simulation_arrays(problem)
        self.scratch = new_scratch(self.arrays)
        self.timing, self.full = timing_scratch(self.arrays), new_scratch(self.arrays)
        self.levels = coarse_to_fine(problem, (2, 4), seed)
        limits = choice_limits(
            self.levels, np.ones(len(self.levels.free_row) - 1), np.ones(NUM_KINDS)
        )
        self.config = ChainConfig(limits, problem.usable_bytes(), memory_weight, temperature)
        self.state = new_chain(problem.num_ops, seed)
        rng = np.random.default_rng(seed)
        placement = rng.integers(0, problem.num_devices, problem.num_ops)
        self.state.position.device_of_op[:] = self.state.best[:] = placement
        energy, fits = self.energy(self.state.best)
        self.state.energy[:], self.state.feasible[:] = energy, fits

    def energy(self, device_of_op):
        """Seconds and whether it fits, by a plain run in scratch that no chain has seen."""
        seconds = simulate(self.arrays, self.scratch, device_of_op, np.inf)
        usable = self.config.usable
        penalty = memory_penalty(self.scratch.peak, usable, self.config.overflow_weight)
        return seconds * penalty, bool((self.scratch.peak <= usable).all())

    def run(self, num_trials):
        anneal(
            self.arrays, self.timing, self.full, self.levels, self.config, self.state, num_trials
        )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    memory=st.sampled_from([None, 0.9, 0.5, 0.1]),
    has_executor=st.booleans(),
)
def test_what_a_chain_keeps_is_what_plain_runs_of_its_placements_give(seed, memory, has_executor):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 20)
    if has_executor:
        problem = random_executor(rng, problem)
    arrays = simulation_arrays(problem)
    scratch = new_scratch(arrays)
    if memory is not None:
        simulate(arrays, scratch, np.zeros(problem.num_ops, dtype=np.int32), np.inf)
        limited = np.full(problem.num_devices, int(scratch.peak.max() * memory))
        problem = dataclasses.replace(problem, device_memory_bytes=limited)
    chain = _Annealed(problem, seed)
    if not chain.config.choice_limits[-1]:
        return
    state = chain.state
    best = np.inf, False
    for _ in range(6):
        chain.run(15)
        for which, device_of_op in ((CURRENT, state.position.device_of_op), (BEST, state.best)):
            energy, fits = chain.energy(device_of_op)
            kept = state.energy[which], bool(state.feasible[which])
            # Until memory binds the chain checks new bests only: what it accepted before then
            # counts as if it fitted, until something else is accepted.
            unchecked = simulate(arrays, scratch, device_of_op, np.inf), True
            assert kept == (energy, fits) or (which == CURRENT and kept == unchecked)
        now = state.energy[BEST], bool(state.feasible[BEST])
        assert (not now[1], now[0]) <= (not best[1], best[0])
        best = now
        assert (
            (not state.feasible[BEST], state.energy[BEST])
            <= (not state.feasible[CURRENT], state.energy[CURRENT])
            or not state.memory_binds[0]
        )  # fmt: skip


def test_an_unchecked_current_placement_is_no_best():
    # Both fit alone; together on one device they don't, and that is no quicker.
    ops = [Op("a", 1.0, persistent=6), Op("b", 1.0, persistent=6)]
    chain = _Annealed(build_problem(ops, Machine(2, memory=10)), 0, temperature=10.0)
    chain.state.position.device_of_op[:] = chain.state.best[:] = [0, 1]
    chain.state.energy[:], chain.state.feasible[:] = 1.0, 1
    chain.run(50)
    assert chain.energy(chain.state.best) == (1.0, True)


def test_moves_that_are_not_accepted_are_taken_back():
    ops = [Op(f"op{i}", (9.0, 1.0), (f"op{i - 1}:0",) if i else ()) for i in range(5)]
    problem = build_problem(ops, Machine(2))
    chain = _Annealed(problem, 0, temperature=1e-9)
    chain.levels = levels_of(problem, [colocation_units(problem.graph)])
    chain.config = chain.config._replace(choice_limits=np.cumsum(np.ones(NUM_KINDS)))
    state = chain.state
    state.position.device_of_op[:] = state.best[:] = 1
    state.energy[:], state.feasible[:] = 5.0, 1
    chain.run(300)
    # Any op elsewhere makes the chain longer, and it is as cold as can be.
    assert state.position.device_of_op.tolist() == [1] * 5
    assert state.energy[CURRENT] == state.energy[BEST] == 5.0


@pytest.mark.parametrize(("temperature", "least", "most"), [(0.5, 40, 90), (0.05, 0, 8)])
def test_worse_placements_are_accepted_by_metropolis_rule(temperature, least, most):
    # One op, 1 s on device 0 and 1.3 s on device 1: the way up has the chance 1.3 ** (-1 / T),
    # 0.59 and 0.005, the way down is always open. So 0.37 and 0.005 of the time is spent above.
    problem = build_problem([Op("a", (1.0, 1.3))], Machine(2))
    chain = _Annealed(problem, 1, temperature)
    chain.state.position.device_of_op[:] = chain.state.best[:] = 0
    chain.state.energy[:], chain.state.feasible[:] = 1.0, 1
    above = 0
    for _ in range(200):
        chain.run(1)
        above += int(chain.state.position.device_of_op[0])
    assert least < above < most or above == least == 0


def test_same_seed_same_chain():
    problem = random_problem(np.random.default_rng(8), 30)
    chains = [_Annealed(problem, seed) for seed in (4, 4, 5)]
    for chain in chains:
        chain.run(200)
    states = [chain.state.position.device_of_op.tolist() for chain in chains]
    assert states[0] == states[1] != states[2]
