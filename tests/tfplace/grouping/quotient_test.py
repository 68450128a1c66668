"""Tests of tfplace.grouping.quotient."""

import numpy as np

from graphs.problem import Grouping
from tests.builders import Machine, Op, build_problem, colocated_pair, diamond, fan_out
from tfplace.grouping import quotient


def test_numbering_follows_the_mean_position():
    grouping = quotient.in_graph_order(np.array([7, 3, 3, 7, 7, 9, 3]))
    np.testing.assert_array_equal(grouping.group_of_op, [0, 1, 1, 0, 0, 2, 1])
    assert grouping.num_groups == 3


def test_units_keep_colocated_ops_together():
    units = quotient.colocation_units(colocated_pair().graph)
    np.testing.assert_array_equal(units.group_of_op, [0, 1, 0])


def test_a_group_may_lie_where_all_its_ops_may():
    allowed = np.array([[True, True, False], [True, False, True], [False, True, True]])
    joint = quotient.group_allowed(allowed, Grouping(np.array([0, 0, 1], np.int32), 2))
    np.testing.assert_array_equal(joint, [[True, False, False], [False, True, True]])


def test_classes_number_distinct_rows():
    allowed = np.array([[True, True], [True, False], [True, True]])
    number = quotient.allowed_class(allowed)
    assert number[0] == number[2] != number[1]


def test_use_seconds_share_a_tensors_worst_case():
    machine = Machine(num_devices=3, latency=0.5, bandwidth=2.0)
    problem = fan_out(4, size=8, machine=machine)
    # 0.5 s + 8 B / 2 B/s = 4.5 s, sent to two other devices at most, by four uses.
    np.testing.assert_allclose(quotient.use_seconds(problem)[:4], 4.5 * 2 / 4)


def test_one_device_moves_nothing():
    problem = diamond(size=8, machine=Machine(num_devices=1))
    np.testing.assert_array_equal(quotient.use_seconds(problem), np.zeros(4))


def test_quotient_sums_what_is_cut():
    grouping = Grouping(np.array([0, 1, 1, 1], np.int32), 2)
    edges = quotient.quotient(diamond().graph, grouping, np.array([1.0, 2.0, 4.0, 8.0]))
    np.testing.assert_array_equal(edges.toarray(), [[0.0, 3.0], [0.0, 0.0]])


def test_fastest_seconds_heed_what_is_allowed():
    problem = build_problem([Op("a", seconds=(5.0, 1.0), pin=0), Op("b", seconds=(np.inf, np.inf))])
    np.testing.assert_array_equal(quotient.fastest_seconds(problem, problem.allowed()), [5.0, 0.0])
