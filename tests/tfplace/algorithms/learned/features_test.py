"""Tests of tfplace.algorithms.learned.features."""

import dataclasses

import numpy as np

from graphs.placement import Grouping
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
    blocks = features.group_features(graph, table, groups)
    np.testing.assert_allclose(blocks.block("seconds"), [[0.25], [0.5], [0.25]])
    np.testing.assert_allclose(
        blocks.block("type_counts"), np.log([[2], [3], [2]]) / np.log(3), rtol=1e-6
    )
    np.testing.assert_array_equal(blocks.block("predecessors"), [[0, 0, 0], [1, 0, 0], [0, 1, 0]])


def test_columns_are_disjoint_and_cover_everything():
    problem = unrolled_lstm()
    halves = Grouping((np.arange(problem.num_ops) % 2).astype(np.int32), 2)
    for table in (
        features.op_features(problem),
        features.group_features(problem.graph, features.op_table(problem), halves),
    ):
        covered = np.concatenate(
            [np.arange(part.start, part.stop) for part in table.columns.values()]
        )
        np.testing.assert_array_equal(covered, np.arange(table.values.shape[1]))
        assert table.values.dtype == np.float32
        assert np.abs(table.values).max() <= 10.0


def test_block_reads_the_columns_that_were_put_in():
    table = features.side_by_side({"a": np.ones((2, 3)), "b": np.array([[5.0], [6.0]])})
    assert table.columns == {"a": slice(0, 3), "b": slice(3, 4)}
    np.testing.assert_array_equal(table.block("b"), [[5.0], [6.0]])


def test_an_op_without_a_kernel_leaves_features_finite():
    problem = build_problem([Op("a", seconds=(1.0, np.inf)), Op("b", seconds=(np.inf, 1.0))])
    table = features.op_table(problem)
    assert np.isfinite(features.group_features(problem.graph, table, grouping(0, 0)).values).all()


def test_an_empty_group_is_all_zero():
    problem = diamond()
    groups = Grouping(np.array([0, 0, 2, 2], dtype=np.int32), 3)
    table = features.group_features(problem.graph, features.op_table(problem), groups)
    assert not table.values[1].any()
