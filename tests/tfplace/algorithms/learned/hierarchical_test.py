"""Tests of what is HDP's own; see contract_test for the rest."""

import dataclasses

import numpy as np

from tests.builders import Machine, Op, build_problem, two_towers, unrolled_lstm
from tfplace.algorithms.learned.config import GrouperConfig, HierarchicalConfig, Seq2SeqConfig
from tfplace.algorithms.learned.hierarchical import Hierarchical
from tfplace.grouping.coarsen import coarsen

TOWERS = two_towers(4, machine=Machine(num_devices=2, bandwidth=1e6))
SMALL = HierarchicalConfig(
    GrouperConfig(num_groups=3, start_probability=1.0 - 1e-9),
    Seq2SeqConfig(units=8, num_layers=1, compiled=False),
)


def test_one_grouping_and_four_placements_from_minimum_cuts():
    proposal = Hierarchical(TOWERS, config=SMALL).propose()
    assert proposal.devices.shape == (4, 3)
    wanted = coarsen(TOWERS, 3).group_of_op
    np.testing.assert_array_equal(proposal.device_of_op, proposal.devices[:, wanted])


def test_a_uniform_start_uses_all_groups():
    problem = unrolled_lstm()
    grouper = dataclasses.replace(SMALL.grouper, start="uniform")
    policy = Hierarchical(problem, config=dataclasses.replace(SMALL, grouper=grouper))
    counts = np.bincount(policy.propose().group_of_unit, minlength=3)
    assert counts.min() > 0.2 * counts.sum()


def test_noise_on_the_logits_ends():
    quiet = dataclasses.replace(SMALL, noise_updates=0)
    noisy = Hierarchical(TOWERS, config=SMALL).propose().log_distributions
    flat = Hierarchical(TOWERS, config=quiet).propose().log_distributions
    np.testing.assert_allclose(np.exp(flat), 0.5)
    assert np.abs(np.exp(noisy) - 0.5).max() > 0.005


def test_colocated_ops_without_the_wanted_kernel_go_to_one_device():
    # Alone, each of the two would be fastest elsewhere; together they are on device 1.
    nowhere = float("inf")
    ops = [
        Op("read", seconds=(1.0, 2.0, nowhere), colocation=0),
        Op("update", seconds=(5.0, 1.0, nowhere), inputs=("read:0",), colocation=0),
        Op("free", inputs=("update:0",)),
    ]
    policy = Hierarchical(build_problem(ops, Machine(num_devices=3)), config=SMALL)
    placements = np.concatenate([policy.propose().device_of_op for _ in range(10)])
    np.testing.assert_array_equal(placements[:, 0], placements[:, 1])
    assert set(placements[:, 2]) == {0, 1, 2} and 1 in placements[:, 0]
