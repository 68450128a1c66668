"""Single pieces of a chain; what chains find is tested through Multilevel."""

import numpy as np

from tests.builders import Machine, Op, build_problem, random_problem
from tests.reference_simulator import reference_run
from tfplace.algorithms.annealing.chain import (
    BEST,
    CURRENT,
    NUM_KINDS,
    ChainConfig,
    _trace,
    anneal,
    new_chain,
)
from tfplace.algorithms.annealing.levels import levels_of
from tfplace.grouping.quotient import colocation_units
from tfplace.simulation.arrays import simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import new_scratch, timing_scratch


def test_runs_without_memory_and_with_a_limit_take_the_same_time():
    rng = np.random.default_rng(3)
    for _ in range(60):
        problem = random_problem(rng)
        placement = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
        arrays = simulation_arrays(problem)
        timing = timing_scratch(arrays)
        wanted, _ = reference_run(problem, placement.tolist())
        assert simulate(arrays, timing, placement) == wanted
        # A hair above, since a sum of seconds in another order is another sum.
        assert simulate(arrays, timing, placement, wanted * (1 + 1e-12)) == wanted
        assert simulate(arrays, timing, placement, wanted * 0.5) in (wanted, np.inf)


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
    state = new_chain(5, 0)
    state.device_of_op[:] = [0, 1, 1, 0, 0]
    assert simulate(arrays, scratch, state.device_of_op) == 11.0
    _trace(arrays, scratch, state)
    # start's copy is there at 5 s; wait starts at 9 s, when busy has ended.
    assert state.critical[: state.num_critical[0]].tolist() == [3, 2, 1]


def test_moves_that_are_not_accepted_are_taken_back():
    ops = [Op(f"op{i}", (9.0, 1.0), (f"op{i - 1}:0",) if i else ()) for i in range(5)]
    problem = build_problem(ops, Machine(2))
    arrays = simulation_arrays(problem)
    levels = levels_of(problem, [colocation_units(problem.graph)])
    state = new_chain(5, 0)
    state.device_of_op[:] = 1
    state.best[:] = 1
    state.energy[:] = 5.0
    state.feasible[:] = 1
    limits = np.cumsum(np.ones(NUM_KINDS))
    config = ChainConfig(limits, problem.usable_bytes(), 10.0, 1e-9)
    anneal(arrays, timing_scratch(arrays), new_scratch(arrays), levels, config, state, 300)
    # Any op elsewhere makes the chain longer, and it is as cold as can be.
    assert state.device_of_op.tolist() == [1] * 5
    assert state.energy[CURRENT] == state.energy[BEST] == 5.0
