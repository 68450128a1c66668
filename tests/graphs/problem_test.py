"""Where ops may lie and how much memory they may take, on hand-sized problems."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Machine, Op, build_problem, chain, random_problem


def test_kernels_pins_and_colocation_decide_where_an_op_may_lie():
    ops = [
        Op("free"),
        Op("no_kernel_on_gpus", (1.0, np.inf, np.inf)),
        Op("pinned", pin=2),
        Op("variable", colocation=0),
        Op("update", (np.inf, 1.0, 1.0), colocation=0),
        Op("pinned_fellow", colocation=1, pin=1),
        Op("fellow", colocation=1),
    ]
    assert build_problem(ops, Machine(3)).allowed().tolist() == [
        [True, True, True],
        [True, False, False],
        [False, False, True],
        [False, True, True],
        [False, True, True],
        [False, True, False],
        [False, True, False],
    ]


def test_a_contradiction_leaves_no_device():
    ops = [Op("a", colocation=0, pin=0), Op("b", (np.inf, 1.0), colocation=0)]
    assert not build_problem(ops).allowed().any()


def test_where_ops_may_lie_is_computed_once_and_cannot_be_changed_by_a_caller():
    problem = chain(2)
    assert problem.allowed() is problem.allowed()
    with pytest.raises(ValueError, match="read-only"):
        problem.allowed()[0, 0] = False


def test_a_problem_that_was_changed_computes_it_anew():
    problem = chain(2)
    assert problem.allowed().all()
    pinned = dataclasses.replace(problem, pinned_device=np.array([1, -1], dtype=np.int32))
    assert pinned.allowed().tolist() == [[False, True], [True, True]]
    assert problem.allowed().all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_an_op_may_lie_where_each_of_its_group_has_a_kernel_and_no_pin_elsewhere(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    shape = problem.op_seconds.shape
    problem = dataclasses.replace(
        problem,
        op_seconds=rng.choice([1.0, np.inf], shape, p=[0.8, 0.2]),
        pinned_device=rng.choice([-1, shape[1] - 1], shape[0], p=[0.8, 0.2]).astype(np.int32),
        graph=dataclasses.replace(
            problem.graph, colocation_group=rng.integers(-1, 3, shape[0]).astype(np.int32)
        ),
    )
    group = problem.graph.colocation_group
    for op in range(shape[0]):
        fellows = [op] if group[op] < 0 else np.flatnonzero(group == group[op]).tolist()
        for device in range(shape[1]):
            assert problem.allowed()[op, device] == all(
                np.isfinite(problem.op_seconds[fellow, device])
                and problem.pinned_device[fellow] in (-1, device)
                for fellow in fellows
            )


def test_usable_bytes_are_memory_without_the_reserve():
    problem = chain(1, machine=Machine(memory=[100, 60], memory_reserve=0.25))
    assert problem.usable_bytes().tolist() == [75.0, 45.0]


def test_an_edge_goes_from_producer_to_user_with_the_tensors_bytes():
    ops = [Op("a", outputs=(3, 5)), Op("b", inputs=("a:1",)), Op("c", inputs=("a:0", "^b"))]
    producer, user, size = build_problem(ops).graph.op_edges()
    edges = list(zip(producer.tolist(), user.tolist(), size.tolist(), strict=True))
    assert edges == [(0, 2, 3), (0, 1, 5), (1, 2, 0)]
