"""Tests of what is Spotlight's own; see contract_test for the rest."""

import numpy as np

from tests.builders import chain
from tfplace.algorithms.learned.config import Seq2SeqConfig, SpotlightConfig
from tfplace.algorithms.learned.group_placer import Spotlight
from tfplace.grouping.grouped_problem import GroupingConfig

SEQ2SEQ = Seq2SeqConfig(units=8, num_layers=1, compiled=False)


def test_it_starts_uniform_in_batches_of_ten():
    policy = Spotlight(chain(3), config=SpotlightConfig(GroupingConfig(max_groups=3), SEQ2SEQ))
    proposal = policy.propose()
    assert proposal.device_of_op.shape == (10, 3)
    np.testing.assert_allclose(np.exp(proposal.log_distributions), 0.5)


def test_one_group_is_placed_whole():
    policy = Spotlight(chain(3), config=SpotlightConfig(GroupingConfig(max_groups=1), SEQ2SEQ))
    placements = policy.propose().device_of_op
    assert (placements == placements[:, :1]).all()
