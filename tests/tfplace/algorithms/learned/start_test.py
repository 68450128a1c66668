"""Going on from a placement: what Spotlight and Post do with `start`."""

import dataclasses

import numpy as np
import pytest

from tests.builders import Machine, two_towers
from tests.fakes import WantedDevices
from tests.tfplace.algorithms.learned.search import search
from tfplace.algorithms.learned.config import AdamConfig, PostConfig, Seq2SeqConfig, SpotlightConfig
from tfplace.algorithms.learned.group_placer import Spotlight
from tfplace.algorithms.learned.post import Post
from tfplace.grouping.grouped_problem import GroupingConfig

PROBLEM = two_towers(6, machine=Machine(num_devices=3, bandwidth=1e6, types=["GPU"] * 3))
GROUPS = GroupingConfig(max_groups=9)
SEQ2SEQ = Seq2SeqConfig(units=8, num_layers=1, bidirectional=False, compiled=False)
SMALL = {
    Spotlight: SpotlightConfig(GROUPS, SEQ2SEQ, AdamConfig(1e-2), start_epsilon=0.3),
    Post: PostConfig(GROUPS, elite_period=20, start_epsilon=0.3),
}
BOTH = pytest.mark.parametrize("algorithm", list(SMALL), ids=lambda each: each.__name__)
# Neighbours lie apart: no minimum cut of the graph is like it.
START = (np.arange(PROBLEM.num_ops) % 3).astype(np.int32)


@BOTH
def test_the_first_distribution_is_close_to_the_start(algorithm):
    proposal = algorithm(PROBLEM, config=SMALL[algorithm], start=START).propose()
    # (1 - 0.3) + 0.3 / 3 on the start's device, 0.3 / 3 on the others.
    probabilities = np.unique(np.round(np.exp(proposal.log_distributions), 3))
    np.testing.assert_allclose(probabilities, [0.1, 0.8], rtol=1e-6)
    share_kept = (proposal.device_of_op == START).mean()
    assert 0.6 < share_kept < 0.95


@BOTH
def test_with_no_uniform_part_the_start_itself_is_proposed(algorithm):
    config = dataclasses.replace(SMALL[algorithm], start_epsilon=1e-12)
    placements = algorithm(PROBLEM, config=config, start=START).propose().device_of_op
    np.testing.assert_array_equal(placements, np.broadcast_to(START, placements.shape))


@BOTH
def test_it_gets_better_from_there(algorithm):
    wanted = START.copy()
    wanted[wanted == 2] = 0
    policy = algorithm(PROBLEM, config=SMALL[algorithm], start=START)
    outcomes, _ = search(policy, WantedDevices(wanted), 200)
    seconds = np.array([outcome.step_seconds for outcome in outcomes])
    assert seconds[-20:].mean() < 0.8 * seconds[:20].mean()


@BOTH
def test_without_a_start_it_is_the_published_one(algorithm):
    policy = algorithm(PROBLEM, config=SMALL[algorithm], start=None)
    np.testing.assert_allclose(np.exp(policy.propose().log_distributions), 1 / 3, rtol=1e-6)
