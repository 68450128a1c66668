"""Tests of tfplace.grouping.grouped_problem."""

import numpy as np

from tests.builders import Op, build_problem, chain, diamond, unrolled_lstm
from tfplace.grouping.coarsen import colocrl_grouping


def groups(problem):
    return list(colocrl_grouping(problem).group_of_op)


def test_a_chain_is_one_group():
    assert groups(chain(5)) == [0] * 5


def test_a_diamond_joins_in_two_rounds():
    # left and right join bottom; then top has one consumer left, and joins, too.
    assert groups(diamond()) == [0, 0, 0, 0]


def test_an_op_with_two_consuming_groups_stays():
    ops = [
        Op("source"),
        Op("left", inputs=("source:0",)),
        Op("left_end", inputs=("left:0",), outputs=()),
        Op("right", inputs=("source:0",)),
        Op("right_end", inputs=("right:0",), outputs=()),
    ]
    assert groups(build_problem(ops)) == [0, 1, 1, 2, 2]


def test_a_cpu_only_consumer_is_not_joined():
    ops = [Op("a"), Op("b", inputs=("a:0",)), Op("c", seconds=(1.0, np.inf), inputs=("b:0",))]
    assert groups(build_problem(ops)) == [0, 0, 1]


def test_groups_that_consume_each_other_become_one():
    ops = [
        Op("a", colocation=0),
        Op("b", inputs=("a:0",)),
        Op("c", inputs=("b:0",), outputs=(), colocation=0),
    ]
    assert groups(build_problem(ops)) == [0, 0, 0]


def test_pinned_apart_stay_apart():
    ops = [Op("a", pin=0), Op("b", inputs=("a:0",), pin=1)]
    assert groups(build_problem(ops)) == [0, 1]


def test_a_result_has_nothing_left_to_join():
    problem = unrolled_lstm()
    grouping = colocrl_grouping(problem)
    producer, consumer, _ = problem.graph.op_edges()
    pairs = np.stack([grouping.group_of_op[producer], grouping.group_of_op[consumer]], axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    consumers = np.bincount(pairs[:, 0], minlength=grouping.num_groups)
    assert grouping.num_groups > 1
    assert not (consumers == 1).any()
