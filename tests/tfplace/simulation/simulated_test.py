"""One placement's Simulated: worked by hand, and equal to what the simulator says in pieces."""

import dataclasses

import numpy as np
import pytest

from graphs.problem import Infeasible, Measurement
from tests.builders import (
    Machine,
    Op,
    build_problem,
    chain,
    random_executor,
    random_problem,
    with_executor,
)
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulated import Best, Prediction, prediction_of, simulated
from tfplace.simulation.simulator import Simulator


def _devices(*values):
    return np.array(values, dtype=np.int32)


def test_a_chain_over_two_devices():
    # 1 s, then 4 bytes at 2 bytes/s and 0.5 s of latency, then 1 s.
    placed = simulated(
        chain(2, size=4, machine=Machine(latency=0.5, bandwidth=2.0)), _devices(0, 1)
    )
    assert placed.outcome == Measurement(4.5, (4, 8), "simulated")
    assert placed.is_feasible and placed.reason == ""
    assert placed.schedule is not None
    assert placed.schedule.op_start.tolist() == [0.0, 3.5]
    assert placed.peak_bytes == {"/device:CPU:0": 4, "/device:GPU:0": 8}
    assert placed.ops_per_device == {"/device:CPU:0": 1, "/device:GPU:0": 1}
    assert placed.busy_share == {"/device:CPU:0": 1 / 4.5, "/device:GPU:0": 1 / 4.5}
    assert (placed.num_transfers, placed.transfer_bytes) == (1, 4)
    assert placed.memory is placed.memory
    assert [use.bytes.tolist() for use in placed.memory] == [[4, 0], [0, 4, 8, 0]]


def test_a_placement_without_a_kernel_has_no_schedule():
    problem = build_problem([Op("a", (1.0, np.inf), persistent=3), Op("b", 1.0, ("^a",))])
    placed = simulated(problem, _devices(1, 0))
    assert placed.schedule is None and not placed.is_feasible
    assert placed.reason == "op 'a' (Op) has no kernel on /device:GPU:0"
    assert placed.busy_share == {}
    assert (placed.num_transfers, placed.transfer_bytes) == (0, 0)
    with pytest.raises(ValueError, match=r"an op never ends .op 'a' .Op. has no kernel"):
        placed.known_schedule()
    assert prediction_of(placed) == Prediction(
        step_seconds=None,
        feasible=False,
        obstacle="no_kernel",
        reason=placed.reason,
        peak_bytes={"/device:CPU:0": 0, "/device:GPU:0": 3},
        ops_per_device={"/device:CPU:0": 1, "/device:GPU:0": 1},
        busy_share={},
        memory_bytes={"/device:CPU:0": 10**9, "/device:GPU:0": 10**9},
        transfers=0,
        transfer_bytes=0,
        communication="duplex",
    )
    assert Best.of(placed).step_seconds == np.inf


def test_what_lacks_memory_is_infeasible_but_has_a_schedule():
    placed = simulated(chain(3, size=50, machine=Machine(memory=99)), _devices(0, 0, 0))
    assert isinstance(placed.outcome, Infeasible) and placed.outcome.reason == "memory"
    assert placed.known_schedule().makespan == 3.0
    assert prediction_of(placed).step_seconds == 3.0


def test_with_several_orders_the_outcome_is_the_mean_and_the_schedule_the_firsts():
    ops = [Op("a", 1.0), Op("b", 2.0), Op("after_a", 4.0, ("a:0",)), Op("after_b", 1.0, ("b:0",))]
    problem = build_problem(ops, Machine(2, latency=0.0))
    problem = with_executor(problem, turn=[[1, 0, 2, 3], [0, 1, 2, 3]])
    placed = simulated(problem, _devices(0, 0, 1, 1))
    assert placed.outcome.step_seconds == 6.5
    assert placed.known_schedule().makespan == 7.0


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_evaluator_and_simulator(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 20)
    problem = dataclasses.replace(problem, device_memory_bytes=problem.device_memory_bytes * 0 + 9)
    if seed % 2:
        problem = random_executor(rng, problem)
    placement = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
    evaluator = SimulatingEvaluator(problem, num_threads=1)
    for placed in (simulated(problem, placement), simulated(problem, placement, evaluator)):
        assert placed.outcome == evaluator.evaluate(placement[None])[0]
        schedule = Simulator(problem, num_threads=1).schedule(placement)
        assert placed.known_schedule().op_end.tolist() == schedule.op_end.tolist()
        assert tuple(placed.peak_bytes.values()) == placed.outcome.peak_bytes
        assert [int(use.bytes.max()) for use in placed.memory] == [*placed.outcome.peak_bytes]
