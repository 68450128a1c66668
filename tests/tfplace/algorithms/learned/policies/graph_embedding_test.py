"""Tests of tfplace.algorithms.learned.policies.graph_embedding."""

import numpy as np
import tensorflow as tf

from tfplace.algorithms.learned.policies.graph_embedding import (
    GraphEmbedding,
    GraphRelations,
    GraphState,
)

# A chain of three groups.
RELATIONS = GraphRelations(
    from_parents=tf.constant([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]),
    from_children=tf.constant([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]),
    pools=tf.constant(
        [
            [[0.0, 0, 0], [1, 0, 0], [1, 1, 0]],
            [[0.0, 1, 1], [0, 0, 1], [0, 0, 0]],
            np.zeros((3, 3)),
        ],
        tf.float32,
    ),
)
RNG = np.random.default_rng(0)
GROUPS = RNG.normal(size=(2, 3, 4)).astype(np.float32)
DEVICES = RNG.normal(size=(2, 3, 2)).astype(np.float32)
PLACEMENT = np.array([[0, 1, 2], [2, 2, 0]], dtype=np.int32)


def state(order=(0, 1, 2)):
    """Two states, with the devices renumbered: new device i is old device order[i]."""
    new_number = np.argsort(order)
    return GraphState(
        group_features=tf.constant(GROUPS),
        device_features=tf.constant(DEVICES[:, list(order)]),
        placement=tf.constant(new_number[PLACEMENT]),
        current=tf.constant([1, 2]),
        log_prior=tf.zeros([2, 3]),
    )


def trained_looking():
    policy = GraphEmbedding((4, 2), units=4, rounds=3, seed=0)
    policy.output.set_weights([RNG.normal(size=w.shape) for w in policy.output.get_weights()])
    return policy


def test_it_starts_uniform():
    policy = GraphEmbedding((4, 2), units=4, rounds=3, seed=0)
    logs = policy.log_distributions(RELATIONS, state())
    np.testing.assert_allclose(tf.exp(logs), 1 / 3, rtol=1e-6)


def test_renumbering_the_devices_renumbers_the_probabilities():
    policy = trained_looking()
    logs = policy.log_distributions(RELATIONS, state()).numpy()
    again = policy.log_distributions(RELATIONS, state((2, 0, 1))).numpy()
    np.testing.assert_allclose(again, logs[:, [2, 0, 1]], rtol=1e-5)
    assert np.ptp(np.exp(logs)) > 0.05


def test_where_other_groups_lie_matters():
    policy = trained_looking()
    moved = state()._replace(placement=tf.constant([[1, 1, 2], [2, 2, 0]]))
    before = policy.log_distributions(RELATIONS, state()).numpy()
    after = policy.log_distributions(RELATIONS, moved).numpy()
    assert np.abs(before[0] - after[0]).max() > 1e-3
    np.testing.assert_allclose(before[1], after[1], rtol=1e-6)


def test_no_weight_depends_on_the_number_of_groups_or_devices():
    widths = {dimension for v in trained_looking().variables for dimension in v.shape}
    assert 3 not in widths
