"""What every placer that proposes once has to keep, on hand-sized and random problems."""

import dataclasses

import numpy as np
import pytest

from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem, colocated_pair, two_towers, unrolled_lstm
from tfplace.algorithms.placers import one_shot
from tfplace.algorithms.placers.cuts import m_topo, minimum_cuts
from tfplace.algorithms.placers.earliest_start import m_etf, m_sct
from tfplace.algorithms.placers.heft import heft
from tfplace.algorithms.placers.one_shot import OneShot, Random, single_devices
from tfplace.simulation.evaluator import SimulatingEvaluator

SPREADING = (m_topo, m_etf, m_sct, heft, minimum_cuts)
FAST_LINKS = {"latency": 0.01, "bandwidth": 100.0}


def _outcomes(problem, placer):
    return SimulatingEvaluator(problem).evaluate(placer(problem, 0))


def random(problem, seed):
    return Random(problem, seed).propose().device_of_op


def _best(problem, placer):
    return min(outcome.step_seconds for outcome in _outcomes(problem, placer))


def _constrained_problem():
    """Pins, colocation and a CPU-only op on a CPU and two GPUs."""
    cpu_only = (1.0, np.inf, np.inf)
    ops = [
        Op("read", cpu_only, outputs=(4,)),
        Op("variable", 0.0, outputs=(8,), alloc=(0,), persistent=8, colocation=3),
        Op("a", (9.0, 1.0, 1.0), ("read:0", "variable:0"), (4,)),
        Op("b", (9.0, 1.0, 1.0), ("read:0",), (4,), pin=2),
        Op("update", 0.1, ("a:0", "b:0", "variable:0"), (), colocation=3),
        Op("log", 0.1, ("b:0",), (), colocation=7, pin=1),
        Op("log2", 0.1, ("a:0",), (), colocation=7),
    ]
    return build_problem(ops, Machine(3, **FAST_LINKS))


@pytest.mark.parametrize("placer", [single_devices, random, *SPREADING])
def test_pins_kernels_and_colocation_are_kept(placer):
    for outcome in _outcomes(_constrained_problem(), placer):
        assert isinstance(outcome, Measurement), outcome


def test_of_many_alike_devices_one_stands_for_all(monkeypatch):
    ops = [Op("a", (3.0, 2.0, 1.0, 1.0)), Op("b", (3.0, 1.0, 1.0, 1.0), ("a:0",))]
    problem = build_problem(ops, Machine(4))
    assert len(single_devices(problem)) == 4
    monkeypatch.setattr(one_shot, "MANY_DEVICES", 3)
    np.testing.assert_array_equal(single_devices(problem), [[0, 0], [1, 1], [2, 2]])
    pinned = dataclasses.replace(problem, pinned_device=np.array([3, -1], np.int32))
    assert len(single_devices(pinned)) == 4


@pytest.mark.parametrize("placer", SPREADING)
def test_memory_is_made_to_fit(placer):
    # 6 ops hold 30 bytes each for the whole step; each of the two GPUs takes 100.
    ops = [Op(f"op{index}", (50.0, 1.0, 1.0), outputs=(), persistent=30) for index in range(6)]
    problem = build_problem(ops, Machine(3, memory=(1000, 100, 100)))
    assert all(isinstance(outcome, Measurement) for outcome in _outcomes(problem, placer))


@pytest.mark.parametrize("placer", SPREADING)
def test_activations_are_made_to_fit(placer):
    machine = Machine(4, latency=1e-5, bandwidth=1e10)
    problem = unrolled_lstm(2, 6, machine)
    single = _outcomes(problem, single_devices)[-1]
    # 60 % of what one GPU needs; the CPU has as much.
    memory = np.full(4, int(max(single.peak_bytes) * 0.6))
    problem = dataclasses.replace(problem, device_memory_bytes=memory)
    assert _outcomes(problem, single_devices)[-1].reason == "memory"
    assert any(isinstance(outcome, Measurement) for outcome in _outcomes(problem, placer))


@pytest.mark.parametrize("placer", SPREADING)
def test_same_seed_same_placements(placer):
    problem = unrolled_lstm(2, 4, Machine(3, latency=1e-5, bandwidth=1e10))
    first, second = (placer(problem, 3) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_one_shot_policy_places_when_asked_and_once():
    calls = []

    def place():
        calls.append(1)
        return np.array([[1, 0], [0, 1]])

    policy, resumed = OneShot(place), OneShot(place)
    assert calls == []
    proposal = policy.propose()
    np.testing.assert_array_equal(proposal.device_of_op, [[1, 0], [0, 1]])
    assert policy.learn(proposal, []) == {}
    assert policy.propose() is None
    resumed.set_state(policy.state())
    assert resumed.propose() is None and calls == [1]


@pytest.mark.parametrize("placer", [m_etf, m_sct, heft, minimum_cuts])
def test_two_towers_go_to_two_devices(placer):
    # The optimum: 4 s for the towers, 0.01 + 1/100 s for the transfer, 1 s for the join.
    problem = two_towers(4, machine=Machine(2, types=("GPU", "GPU"), **FAST_LINKS))
    assert _best(problem, placer) == pytest.approx(5.02)


def test_single_puts_all_on_each_device_in_turn():
    problem = _constrained_problem()
    np.testing.assert_array_equal(
        single_devices(problem),
        [[0, 0, 0, 2, 0, 1, 1], [0, 1, 1, 2, 1, 1, 1], [0, 2, 2, 2, 2, 1, 1]],
    )


def test_single_proposes_equal_placements_once():
    problem = build_problem([Op("a", (1.0, np.inf, np.inf))], Machine(3))
    np.testing.assert_array_equal(single_devices(problem), [[0]])


def test_topological_cuts_at_equal_bytes():
    # Equal ops of 10 bytes: cap = 60 / 2 + 10, so four ops come before the cut.
    ops = [Op(f"op{index}", 1.0, outputs=(), persistent=10) for index in range(6)]
    problem = build_problem(ops, Machine(2, types=("GPU", "GPU")))
    np.testing.assert_array_equal(m_topo(problem), [[0, 0, 0, 0, 1, 1]])


def test_topological_keeps_accelerators_busy_not_the_cpu():
    problem = two_towers(machine=Machine(3))
    assert set(m_topo(problem).ravel().tolist()) == {1, 2}


def test_a_colocation_group_goes_as_one():
    placement = m_etf(colocated_pair(Machine(3)))[0]
    assert placement[0] == placement[2]


def test_random_differs_from_draw_to_draw_and_repeats_with_its_seed():
    problem = two_towers(8, machine=Machine(3))
    policy = Random(problem, seed=1, num_groups=4, batch_size=8)
    first, second = policy.propose().device_of_op, policy.propose().device_of_op
    assert first.shape == (8, problem.num_ops)
    assert not np.array_equal(first, second)
    again = Random(problem, seed=1, num_groups=4, batch_size=8)
    np.testing.assert_array_equal(again.propose().device_of_op, first)


def test_of_many_devices_minimum_cuts_try_some_numbers_of_parts():
    problem = build_problem([Op(f"op{i}", outputs=(1,)) for i in range(80)], Machine(41))
    cuts = minimum_cuts(problem, 0)
    assert {len(np.unique(cut)) for cut in cuts} == {*range(2, 17), 32, 40}
