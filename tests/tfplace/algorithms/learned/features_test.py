"""Tests of tfplace.algorithms.learned.features."""

import dataclasses

import numpy as np

from graphs.problem import Grouping
from tests.builders import Op, build_problem, diamond, unrolled_lstm
from tfplace.algorithms.learned import features


def grouping(*groups):
    return Grouping(np.array(groups, dtype=np.int32), max(groups) + 1)


def test_type_ids():
    ids, vocabulary = features.type_ids(["MatMul", "Add", "MatMul"])
    assert vocabulary == ("Add", "MatMul")
    np.testing.assert_array_equal(ids, [1, 0, 1])


def test_output_shapes_of_two_outputs_and_a_control_tensor():
    ops = [Op("a", outputs=(4, 4)), Op("b", inputs=("^a",), outputs=())]
    graph = build_problem(ops).graph
    shape = np.array([[1, 3, -1, -1], [7, -1, -1, -1], [-1, -1, -1, -1]], dtype=np.int32)
    graph = dataclasses.replace(graph, tensor_shape=shape)
    expected = np.zeros((2, 24))
    expected[0, [0, 1, 4]] = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(features.output_shapes(graph), expected)


def test_neighbours_of_a_diamond():
    none = [-1] * 4
    np.testing.assert_array_equal(
        features.neighbours(diamond().graph),
        [
            [-1, -1, *none, 1, 2, *none],
            [0, -1, *none, 3, -1, *none],
            [0, -1, *none, 3, -1, *none],
            [1, 2, *none, -1, -1, *none],
        ],
    )


def test_at_most_six_neighbours_each_way():
    users = [Op(f"user{i}", inputs=("source:0",)) for i in range(9)]
    graph = build_problem([Op("source"), *users]).graph
    np.testing.assert_array_equal(features.neighbours(graph)[0], [-1] * 6 + [1, 2, 3, 4, 5, 6])


def test_group_blocks_of_a_diamond():
    problem, groups = diamond(size=8), grouping(0, 1, 1, 2)
    graph = problem.graph
    table = features.op_table(problem)
    np.testing.assert_array_equal(table.type_counts.toarray(), [[1]] * 4)
    np.testing.assert_array_equal(table.output_bytes, [8] * 4)
    np.testing.assert_array_equal(table.seconds, [1] * 4)
    np.testing.assert_array_equal(
        features.group_adjacency(graph, groups), [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    )
    np.testing.assert_array_equal(
        features.group_traffic(graph, groups), [[0, 16, 0], [0, 0, 16], [0, 0, 0]]
    )
    # One type; no shapes are known; bytes; seconds; successors; predecessors.
    expected = np.zeros((3, 1 + 24 + 1 + 1 + 3 + 3))
    expected[:, 0] = np.log([2, 3, 2]) / np.log(3)
    expected[:, 25] = np.log([9, 17, 9]) / np.log(17)
    expected[:, 26] = [0.25, 0.5, 0.25]
    expected[0, 28] = expected[1, 29] = 1  # group 0 is used by 1, and 1 by 2
    expected[1, 30] = expected[2, 31] = 1
    np.testing.assert_allclose(features.group_features(graph, table, groups), expected, rtol=1e-6)


def test_op_features_of_a_diamond():
    expected = np.zeros((4, 24 + 12 + 1))
    expected[:, 24:36] = -1.0  # no neighbour: first producers, then consumers
    expected[0, 30:32] = [0.25, 0.5]
    expected[1, [24, 30]] = expected[2, [24, 30]] = [0.0, 0.75]
    expected[3, 24:26] = [0.25, 0.5]
    expected[:, 36] = [0.0, 0.25, 0.5, 0.75]
    np.testing.assert_allclose(features.op_features(diamond()), expected)


def test_features_of_a_large_problem_are_small_numbers():
    problem = unrolled_lstm()
    halves = Grouping((np.arange(problem.num_ops) % 2).astype(np.int32), 2)
    of_groups = features.group_features(problem.graph, features.op_table(problem), halves)
    for table in (features.op_features(problem), of_groups):
        assert table.dtype == np.float32
        assert np.abs(table).max() <= 10.0
    assert of_groups.min() == 0.0 and of_groups.max() == 1.0


def test_an_op_without_a_kernel_leaves_features_finite():
    problem = build_problem([Op("a", seconds=(1.0, np.inf)), Op("b", seconds=(np.inf, 1.0))])
    table = features.op_table(problem)
    assert np.isfinite(features.group_features(problem.graph, table, grouping(0, 0))).all()


def test_an_empty_group_is_all_zero():
    problem = diamond()
    groups = Grouping(np.array([0, 0, 2, 2], dtype=np.int32), 3)
    table = features.group_features(problem.graph, features.op_table(problem), groups)
    assert not table[1].any()
