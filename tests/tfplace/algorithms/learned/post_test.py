"""Tests of what is Post's own; see contract_test for the rest."""

import numpy as np
import pytest

from tests.builders import two_towers
from tests.fakes import WantedDevices
from tests.tfplace.algorithms.learned.search import search
from tfplace.algorithms.learned.config import PostConfig
from tfplace.algorithms.learned.post import Post
from tfplace.grouping.grouped_problem import GroupingConfig

TOWERS = two_towers(2)
WANTED = WantedDevices([0, 1, 0, 1, 1])


def test_a_period_ends_with_the_frequencies_of_its_elite():
    config = PostConfig(
        GroupingConfig(max_groups=5), batch_size=10, elite_period=20, epsilon=0.2, epsilon_trials=40
    )
    policy = Post(TOWERS, seed=1, config=config)
    outcomes, placements = search(policy, WANTED, 20)
    best = np.argsort([outcome.step_seconds for outcome in outcomes], kind="stable")[:2]
    # ε has fallen to half of 0.2; a group is an op here.
    share_of_one = 0.9 * placements[best].mean(axis=0) + 0.1 / 2
    probability = np.exp(policy.propose().log_distributions[0, :, 1])
    order = policy.grouped.grouping.group_of_op
    np.testing.assert_allclose(probability[order], share_of_one, rtol=1e-5)


def test_an_elite_period_that_cuts_a_batch_is_refused():
    with pytest.raises(ValueError, match="elite_period 25 is no multiple of batch_size 10"):
        Post(TOWERS, config=PostConfig(elite_period=25))
