"""Tests of tfplace.algorithms.spotlight."""

import dataclasses

import numpy as np
import pytest

from graphs.placement import Measurement
from tests.builders import Machine, Op, build_problem, chain, two_towers
from tests.fakes import NEVER_FITS, NOT_A_NUMBER, WantedDevices
from tfplace.algorithms.spotlight import Spotlight
from tfplace.config import GroupingConfig, Seq2SeqConfig, SpotlightConfig

SMALL = SpotlightConfig(
    grouping=GroupingConfig(max_groups=9),
    policy=Seq2SeqConfig(units=8, num_layers=1, bidirectional=False, compiled=False),
    learning_rate=1e-2,
)
TOWERS = two_towers(4, machine=Machine(num_devices=2, bandwidth=1e6))
WANTED = WantedDevices([0, 1] * 4 + [1])


def search(policy, evaluator, num_updates):
    """Best step time, and all placements."""
    placements, best = [], np.inf
    for _ in range(num_updates):
        proposal = policy.propose()
        outcomes = evaluator.evaluate(proposal.device_of_op)
        policy.learn(proposal, outcomes)
        placements.append(proposal.device_of_op)
        times = [each.step_seconds for each in outcomes if isinstance(each, Measurement)]
        best = min([best, *times])
    return best, np.concatenate(placements)


def test_finds_the_known_optimum():
    best, placements = search(Spotlight(TOWERS, seed=0, config=SMALL), WANTED, 25)
    assert best == 1.0
    # It learned, rather than hit it by luck: the last samples are mostly right.
    wrong = (placements != WANTED.wanted).mean(axis=1)
    assert wrong[-20:].mean() < 0.5 * wrong[:20].mean()


def test_same_seed_same_trials_and_state_carries_on():
    one, two = (Spotlight(TOWERS, seed=5, config=SMALL) for _ in range(2))
    _, first = search(one, WANTED, 3)
    _, again = search(two, WANTED, 3)
    np.testing.assert_array_equal(first, again)
    state = one.state()
    _, expected = search(one, WANTED, 2)
    other = Spotlight(TOWERS, seed=6, config=SMALL)
    other.set_state(state)
    _, resumed = search(other, WANTED, 2)
    np.testing.assert_array_equal(resumed, expected)


def test_state_of_another_size_is_refused():
    small = Spotlight(TOWERS, config=SMALL)
    wider = dataclasses.replace(SMALL, policy=dataclasses.replace(SMALL.policy, units=16))
    with pytest.raises(ValueError, match="restoring a policy"):
        Spotlight(TOWERS, config=wider).set_state(small.state())


@pytest.mark.parametrize("evaluator", [NEVER_FITS, NOT_A_NUMBER])
def test_no_feasible_placement_keeps_everything_finite(evaluator):
    policy = Spotlight(TOWERS, config=SMALL)
    proposal = policy.propose()
    scalars = policy.learn(proposal, evaluator.evaluate(proposal.device_of_op))
    assert scalars["mean_reward"] <= -10.0
    assert all(np.isfinite(value) for value in scalars.values())
    assert all(np.isfinite(value).all() for key, value in policy.state().items() if "/" in key)


@pytest.mark.parametrize(
    "problem",
    [
        chain(3, machine=Machine(num_devices=1)),
        build_problem([Op("a", pin=1), Op("b", pin=0)]),
    ],
)
def test_without_a_choice_it_ends_after_one_placement(problem):
    policy = Spotlight(problem, config=SMALL)
    proposal = policy.propose()
    assert len(proposal.device_of_op) == 1
    wanted = WantedDevices(proposal.device_of_op[0])
    scalars = policy.learn(proposal, wanted.evaluate(proposal.device_of_op))
    assert scalars == {"mean_reward": pytest.approx(-(problem.num_ops**-0.5))}
    assert policy.propose() is None


def test_one_group_is_placed_whole():
    config = dataclasses.replace(SMALL, grouping=GroupingConfig(max_groups=1))
    proposal = Spotlight(chain(3), config=config).propose()
    assert (proposal.device_of_op == proposal.device_of_op[:, :1]).all()
