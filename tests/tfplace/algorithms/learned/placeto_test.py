"""Tests of what is Placeto's own; see contract_test for the rest."""

import itertools

import numpy as np

from tests.builders import Machine, two_towers, unrolled_lstm
from tests.fakes import WantedDevices
from tests.tfplace.algorithms.learned.search import search
from tfplace.algorithms.learned.config import PlacetoConfig
from tfplace.algorithms.learned.placeto import Placeto, discounted_returns
from tfplace.grouping.grouped_problem import GroupingConfig

SMALL = PlacetoConfig(GroupingConfig(max_groups=5), units=8, rounds=2)


def test_returns_by_hand():
    seconds = np.array([5.0, 3.0, 4.0, 1.0])  # drops of 2, -1 and 3
    np.testing.assert_array_equal(discounted_returns(seconds, 1.0), [4.0, 2.0, 3.0])
    np.testing.assert_array_equal(discounted_returns(seconds, 0.5), [2.25, 0.5, 3.0])


def test_an_episode_visits_each_group_once_in_graph_order():
    problem = two_towers(2, machine=Machine(num_devices=4, bandwidth=1e6))
    policy = Placeto(problem, seed=1, config=SMALL)
    _, placements = search(policy, WantedDevices([0] * 5), 6)
    groups = policy.grouped.grouping.group_of_op
    assert len(np.unique(placements, axis=0)) > 2
    for visit, (before, after) in enumerate(itertools.pairwise(placements)):
        moved = np.unique(groups[before != after])
        assert set(moved) <= {visit}


def test_an_episode_starts_from_the_best_so_far():
    problem = two_towers(2, machine=Machine(num_devices=3, bandwidth=1e6))
    outcomes, placements = search(
        Placeto(problem, seed=1, config=SMALL), WantedDevices([2, 1, 2, 1, 1]), 13
    )
    best = np.argmin([outcome.step_seconds for outcome in outcomes[:6]])
    np.testing.assert_array_equal(placements[6], placements[best])
    best = np.argmin([outcome.step_seconds for outcome in outcomes[:12]])
    np.testing.assert_array_equal(placements[12], placements[best])


def test_a_trained_policy_serves_another_graph_and_cluster():
    wanted = WantedDevices([1] * 5)
    trained = Placeto(two_towers(2), config=SMALL)
    search(trained, wanted, 60)
    problem = unrolled_lstm(machine=Machine(num_devices=5, types=["CPU", *["GPU"] * 4]))
    other = Placeto(problem, config=SMALL)
    other.set_weights(trained.state())
    learned, taken = trained.state(), other.state()
    for name in (name for name in learned if name.startswith("policy/")):
        np.testing.assert_array_equal(taken[name], learned[name])
    _, placements = search(other, WantedDevices([1] * problem.num_ops), 6)
    assert placements.shape == (6, problem.num_ops)
