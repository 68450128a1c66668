"""Tests of tfplace.grouping.coarsen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Machine, Op, build_problem, colocated_pair, two_towers, unrolled_lstm
from tfplace.grouping.coarsen import Coarsening, coarsen
from tfplace.grouping.quotient import group_allowed

CHEAP_LINKS = Machine(num_devices=2, latency=0.0, bandwidth=1e6)


def test_two_towers_are_cut_between_them():
    problem = two_towers(height=6, machine=CHEAP_LINKS)
    groups = coarsen(problem, 2, imbalance=0.3).group_of_op
    names = np.array(problem.graph.op_names)
    side = {name: int(group) for name, group in zip(names, groups, strict=True)}
    assert len({side[f"a{level}"] for level in range(6)}) == 1
    assert len({side[f"b{level}"] for level in range(6)}) == 1
    assert side["a0"] != side["b0"]


def test_an_edge_dearer_than_its_op_is_never_cut():
    # gradient → sum moves 100 s of bytes for a 1 s op; the weights' 1 s of bytes may be cut.
    machine = Machine(num_devices=2, bandwidth=1.0)
    ops = [
        Op("weights", seconds=5.0, outputs=(1,)),
        Op("gradient1", inputs=("weights:0",), outputs=(100,)),
        Op("gradient2", inputs=("weights:0",), outputs=(100,)),
        Op("sum", inputs=("gradient1:0", "gradient2:0"), outputs=()),
    ]
    grouping = coarsen(build_problem(ops, machine), 2)
    np.testing.assert_array_equal(grouping.group_of_op, [0, 1, 1, 1])


def test_one_group():
    assert set(coarsen(unrolled_lstm(), 1).group_of_op) == {0}


def test_as_many_groups_as_ops():
    problem = two_towers(height=2, machine=CHEAP_LINKS)
    assert coarsen(problem, 5).num_groups == 5


def test_no_groups_is_an_error():
    with pytest.raises(ValueError, match="max_groups >= 1, got 0"):
        coarsen(colocated_pair(), 0)


def test_device_sets_are_kept_apart_even_beyond_the_limit():
    ops = [
        Op("free"),
        Op("cpu", seconds=(1.0, np.inf), inputs=("free:0",)),
        Op("gpu", inputs=("cpu:0",), pin=1),
    ]
    problem = build_problem(ops)
    grouping = coarsen(problem, 1)
    np.testing.assert_array_equal(grouping.group_of_op, [0, 1, 2])
    np.testing.assert_array_equal(
        group_allowed(problem.allowed(), grouping), [[True, True], [True, False], [False, True]]
    )


def test_ops_that_take_no_time():
    ops = [Op(f"op{i}", seconds=0.0) for i in range(8)]
    sizes = np.bincount(coarsen(build_problem(ops, CHEAP_LINKS), 4).group_of_op)
    np.testing.assert_array_equal(sizes, [2, 2, 2, 2])


def test_metis_prints_nothing(capfd):
    for size in (2, 5, 13, 40):
        coarsen(unrolled_lstm(num_steps=8), size)
    assert capfd.readouterr().out == ""


@st.composite
def problems(draw):
    size = draw(st.integers(1, 40))
    ops = []
    for index in range(size):
        producers = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        ops.append(
            Op(
                f"op{index}",
                seconds=draw(st.sampled_from([0.0, 1.0, 100.0, (1.0, np.inf)])),
                inputs=tuple(f"op{producer}:0" for producer in producers),
                outputs=(draw(st.sampled_from([0, 1, 10_000])),),
                colocation=draw(st.sampled_from([-1, -1, 0, 1])),
            )
        )
    return build_problem(ops)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), size=st.integers(1, 12), seed=st.integers(0, 3))
def test_invariants(problem, size, seed):
    grouping = coarsen(problem, size, seed)
    allowed = problem.allowed()
    group = grouping.group_of_op
    assert set(group) == set(range(grouping.num_groups))
    assert grouping.num_groups <= max(size, len(np.unique(allowed, axis=0)))
    assert group_allowed(allowed, grouping).any(axis=1).all()
    for number in (0, 1):
        assert len(set(group[problem.graph.colocation_group == number])) <= 1
    np.testing.assert_array_equal(coarsen(problem, size, seed).group_of_op, group)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), sizes=st.permutations([1, 2, 4, 12]), seed=st.integers(0, 3))
def test_whatever_was_asked_for_before_the_groups_are_the_same(problem, sizes, seed):
    several = Coarsening(problem)
    for size in sizes:
        group = several.groups(size, seed).group_of_op
        np.testing.assert_array_equal(group, coarsen(problem, size, seed).group_of_op)
