"""Tests of tfplace.learning.batch."""

import numpy as np

from graphs.placement import Grouping
from tfplace.learning.batch import GroupedProposal, grouped_batch

LOGS = np.log(np.array([[[0.5, 0.5], [0.9, 0.1]], [[0.5, 0.5], [0.2, 0.8]]], dtype=np.float32))
PROPOSAL = GroupedProposal(
    device_of_op=np.array([[0, 1, 1], [1, 1, 1]]),
    devices=np.array([[0, 1], [1, 1]]),
    log_distributions=LOGS,
)


def test_log_probs_are_those_of_the_chosen_devices():
    np.testing.assert_allclose(PROPOSAL.log_probs, np.log([[0.5, 0.1], [0.5, 0.8]]), rtol=1e-6)


def test_batch_has_the_groups_of_each_sample():
    grouping = Grouping(np.array([0, 1, 1], dtype=np.int32), 2)
    batch = grouped_batch(grouping, PROPOSAL, np.array([-1.0, -2.0]), np.array([0.5, -0.5]))
    np.testing.assert_array_equal(batch.groups, [[0, 1, 1], [0, 1, 1]])
    assert batch.devices is PROPOSAL.devices
