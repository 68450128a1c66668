"""Tests of what is ColocRL's own; see contract_test for the rest."""

import dataclasses

import numpy as np

from tests.builders import unrolled_lstm
from tests.fakes import CRASHES
from tests.tfplace.algorithms.learned.search import search
from tfplace.algorithms.learned.config import ColocRLConfig, Seq2SeqConfig
from tfplace.algorithms.learned.group_placer import ColocRL
from tfplace.grouping.coarsen import colocrl_grouping

SMALL = ColocRLConfig(policy=Seq2SeqConfig(units=8, num_layers=1, compiled=False))
PROBLEM = unrolled_lstm()


def weights_after_failures(warm_up_trials):
    config = dataclasses.replace(SMALL, warm_up_trials=warm_up_trials)
    policy = ColocRL(PROBLEM, config=config)
    before = policy.state()
    search(policy, CRASHES, 20)
    after = policy.state()
    return [(before[name], after[name]) for name in before if name.startswith("policy/")]


def test_failures_teach_during_warm_up():
    assert any((before != after).any() for before, after in weights_after_failures(20))


def test_failures_teach_nothing_after_warm_up():
    assert all((before == after).all() for before, after in weights_after_failures(0))


def test_groups_are_those_of_colocation_unless_there_are_too_many():
    wanted = colocrl_grouping(PROBLEM)
    proposal = ColocRL(PROBLEM, config=SMALL).propose()
    assert proposal.devices.shape == (SMALL.batch_size, wanted.num_groups)
    few = dataclasses.replace(SMALL.grouping, max_groups=5)
    proposal = ColocRL(PROBLEM, config=dataclasses.replace(SMALL, grouping=few)).propose()
    assert proposal.devices.shape[1] <= 5 < wanted.num_groups
    for group in range(wanted.num_groups):
        placed = proposal.device_of_op[:, wanted.group_of_op == group]
        np.testing.assert_array_equal(placed, np.broadcast_to(placed[:, :1], placed.shape))
