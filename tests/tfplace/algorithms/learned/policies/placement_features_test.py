"""Tests of tfplace.algorithms.learned.policies.placement_features."""

import numpy as np

from tests.builders import Machine, Op, build_problem
from tfplace.algorithms.learned.policies.placement_features import episode_features, graph_relations
from tfplace.grouping.grouped_problem import GroupingConfig, grouped_problem

# Three groups of one op: a sends 4 bytes to b; c stands alone. Mean group: 2 s.
MACHINE = Machine(num_devices=2, bandwidth=2.0, memory=100)
OPS = [
    Op("a", seconds=(3.0, 1.0), outputs=(4,)),
    Op("b", seconds=(4.0, 2.0), inputs=("a:0",), outputs=(), persistent=10),
    Op("c", seconds=(6.0, 3.0), outputs=(0,)),
]
GROUPED = grouped_problem(build_problem(OPS, MACHINE), GroupingConfig(max_groups=3), seed=0)
FEATURES = episode_features(GROUPED)
PLACED = np.array([True, False, False])


def test_groups():
    np.testing.assert_allclose(
        FEATURES.of_groups(PLACED, current=1),
        [
            [np.log(1.5), np.log(2.0), np.log(1.4), 1.0, 0.0],
            [np.log(2.0), 0.0, np.log(2.0), 0.0, 1.0],
            [np.log(2.5), 0.0, 0.0, 0.0, 0.0],
        ],
        rtol=1e-6,
    )


def test_devices():
    found = FEATURES.of_devices(np.array([1, 0, 0], dtype=np.int32), PLACED, current=1)
    np.testing.assert_allclose(
        found,
        [
            # On the CPU lies c: 6 s of 6; no traffic; 10 of 100 bytes if b stays.
            [np.log(3.0), np.log(2.0), 1.0, 0.0, 0.0, 0.0, 0.1, 1.0, 1.0],
            # On the GPU lies a: 1 s of 6, placed; 2 s of traffic in; 14 bytes with b.
            [np.log(2.0), 0.0, 1 / 6, 1 / 6, np.log(2.0), 0.0, 0.14, 0.0, 0.0],
        ],
        rtol=1e-5,
        atol=1e-7,
    )


def test_relations():
    relations = graph_relations(GROUPED)
    np.testing.assert_array_equal(relations.from_parents, [[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(relations.from_children, [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(
        relations.pools,
        [
            [[0, 0, 0], [1, 0, 0], [0, 0, 0]],
            [[0, 1, 0], [0, 0, 0], [0, 0, 0]],
            [[0, 0, 1], [0, 0, 1], [1, 1, 0]],
        ],
    )
