"""Runs with a limit: exact where they can meet it, given up where they can't."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import (
    Machine,
    Op,
    build_problem,
    chain,
    random_executor,
    random_problem,
    two_towers,
    with_executor,
)
from tests.reference_simulator import reference_run
from tfplace.simulation.arrays import simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import new_scratch, timing_scratch


def _longest_path(problem, placement):
    """Seconds, with the moves between devices as if each had its link for itself."""
    graph, arrays = problem.graph, simulation_arrays(problem)
    end = np.zeros(problem.num_ops)
    for op in range(problem.num_ops):
        begin = 0.0
        for tensor in graph.use_tensor[graph.use_op == op]:
            producer = graph.tensor_producer[tensor]
            source, target = placement[producer], placement[op]
            move = 0.0
            if source != target:
                move = graph.tensor_bytes[tensor] / arrays.bandwidth[source, target]
                move += arrays.latency[source, target]
            begin = max(begin, end[producer] + move)
        end[op] = begin + problem.op_seconds[op, placement[op]]
    return end.max(initial=0.0)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_a_run_is_given_up_only_above_its_limit_and_always_far_above(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 20)
    if seed % 2:
        problem = random_executor(rng, problem)
    placement = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
    arrays = simulation_arrays(problem)
    timing = timing_scratch(arrays)
    wanted = simulate(arrays, new_scratch(arrays), placement, np.inf)
    assert wanted == pytest.approx(reference_run(problem, placement.tolist())[0], rel=1e-9, abs=0)
    assert simulate(arrays, timing, placement, np.inf) == wanted
    # A hair above, since a sum of seconds in another order is another sum.
    assert simulate(arrays, timing, placement, wanted * (1 + 1e-12)) == wanted
    assert simulate(arrays, timing, placement, wanted * 0.5) in (wanted, np.inf)
    least = _longest_path(problem, placement)
    if least > 0.0:
        assert simulate(arrays, timing, placement, least * (1 - 1e-9)) == np.inf


@pytest.mark.parametrize("with_an_executor", [False, True])
def test_a_run_is_given_up_once_the_rest_takes_too_long(with_an_executor):
    # Four ops a tower, both on one device: 8 s of work, then join.
    problem = two_towers(4, machine=Machine(2, latency=100.0))
    if with_an_executor:
        problem = with_executor(problem)
    placement = np.zeros(9, dtype=np.int32)
    placement[7] = 1  # the last op of tower b, whose input arrives late
    arrays = simulation_arrays(problem)
    timing = timing_scratch(arrays)
    # 100 s there and 100 s back, b's last op, join: no path takes less, so no op is started.
    assert simulate(arrays, timing, placement, 200.0) == np.inf
    assert simulate(arrays, timing, placement, 220.0) > 200.0


def test_a_channel_that_is_busy_is_noticed_on_the_way():
    # Three 4-byte tensors leave at 1 s on one way out: the last is there at 13 s.
    ops = [Op("a", 1.0, outputs=(4, 4, 4)), *(Op(f"u{i}", 1.0, (f"a:{i}",)) for i in range(3))]
    problem = build_problem([*ops, Op("tail", 5.0, ("^u2",))], Machine(2))
    placement = np.array([0, 1, 1, 1, 1], dtype=np.int32)
    arrays = simulation_arrays(problem)
    timing = timing_scratch(arrays)
    assert simulate(arrays, timing, placement, np.inf) == 19.0
    timing.op_start[:] = -1.0
    # The longest path has an idle link: 1 + 4 + 1 + 5 s, so 12 s could do at first.
    assert simulate(arrays, timing, placement, 12.0) == np.inf
    assert timing.op_start.tolist()[0] == 0.0 and timing.op_start[4] == -1.0


def test_a_scratch_that_tracks_memory_runs_to_the_end_whatever_the_limit():
    problem = chain(4, size=3)
    arrays = simulation_arrays(problem)
    full = new_scratch(arrays)
    placement = np.array([0, 1, 0, 1], dtype=np.int32)
    wanted = simulate(arrays, full, placement, np.inf)
    peaks = full.peak.tolist()
    assert simulate(arrays, full, placement, 1e-3) == wanted
    assert full.peak.tolist() == peaks


def test_the_mean_over_orders_counts_against_the_limit():
    ops = [Op("a", 1.0), Op("b", 2.0), Op("after_a", 4.0, ("a:0",)), Op("after_b", 1.0, ("b:0",))]
    problem = build_problem(ops, Machine(2, latency=0.0))
    problem = with_executor(problem, turn=[[0, 1, 2, 3], [1, 0, 2, 3]])  # 6 s and 7 s
    arrays = simulation_arrays(problem)
    timing = timing_scratch(arrays)
    placement = np.array([0, 0, 1, 1], dtype=np.int32)
    assert simulate(arrays, timing, placement, 6.5) == 6.5
    assert simulate(arrays, timing, placement, 6.4) in (6.5, np.inf)
    assert simulate(arrays, timing, placement, 4.9) == np.inf


def test_an_op_without_a_kernel_never_ends_whatever_the_limit():
    problem = chain(3)
    seconds = problem.op_seconds.copy()
    seconds[1, 1] = np.inf
    arrays = simulation_arrays(dataclasses.replace(problem, op_seconds=seconds))
    placement = np.ones(3, dtype=np.int32)
    for limit in (1.0, 1e9, np.inf):
        assert simulate(arrays, timing_scratch(arrays), placement, limit) == np.inf
