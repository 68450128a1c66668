"""Tests of tfplace.grouping.copies."""

import numpy as np
import pytest

from tests.builders import Machine, Op, build_graph, build_problem, chain
from tfplace.algorithms.annealing.levels import coarse_to_fine
from tfplace.grouping.copies import is_mostly_repeated, role_groups, roles

MACHINE = Machine(num_devices=2, latency=0.0, bandwidth=1.0)
NUM_STEPS = 9


def _recurrent(num_steps=NUM_STEPS):
    """A layer unrolled: weights, then products and elementwise ops by turns."""
    ops = [Op("w", 0.0, (), (1000,), persistent=1000, type="Variable")]
    for step in range(num_steps):
        inputs = ("w:0", f"t{step - 1}:0") if step else ("w:0",)
        ops.append(Op(f"p{step}", 1.0, inputs, (20,), type="MatMul"))
        ops.append(Op(f"t{step}", 0.1, (f"p{step}:0",), (5,), type="Tanh"))
    return build_problem(ops, MACHINE)


def _names(problem, of_op):
    names = np.array(problem.graph.op_names)
    return {" ".join(names[of_op == group]) for group in set(of_op)}


def test_what_each_step_does_alike_is_one_group():
    problem = _recurrent()
    # The first product has no step before it, and the last elementwise op none behind it.
    assert _names(problem, role_groups(problem).group_of_op) == {
        "w",
        "p0",
        "p1 p2 p3 p4 p5 p6 p7 p8",
        "t0 t1 t2 t3 t4 t5 t6 t7",
        "t8",
    }


@pytest.mark.parametrize(("num_steps", "is_repeated"), [(8, False), (9, False), (10, True)])
def test_a_graph_is_mostly_repeated_if_its_roles_are_a_quarter_of_its_units(num_steps, is_repeated):
    # Its weights, its first and last op, and two roles: 5 of 1 + 2 * num_steps units.
    assert is_mostly_repeated(_recurrent(num_steps)) == is_repeated


def test_what_is_repeated_less_often_stays_alone():
    problem = chain(7, machine=MACHINE)
    assert role_groups(problem).num_groups == 7


def test_colocated_ops_stay_a_unit():
    ops = [Op(f"a{i}", 1.0, (), (1,), colocation=i // 2 if i < 4 else -1) for i in range(12)]
    groups = role_groups(build_problem(ops, MACHINE)).group_of_op
    assert len(set(groups[4:])) == 1
    assert len(set(groups)) == 3
    assert groups[0] == groups[1] != groups[2] == groups[3]


def test_a_role_is_type_and_neighbours_and_bytes():
    ops = [
        Op("a", outputs=(4,)),
        Op("b", outputs=(4,)),
        Op("c", outputs=(8,)),
        Op("d", outputs=(4,), type="Other"),
        *(Op(f"user of {name}", inputs=(f"{name}:0",)) for name in "abcd"),
    ]
    a, b, c, d, *users = roles(build_graph(ops)).tolist()
    assert a == b
    assert len({a, c, d}) == 3
    assert users[0] == users[1]
    assert len(set(users)) == 3


def test_levels_by_role_split_no_role_while_there_are_fewer_groups():
    problem = _recurrent()
    levels = coarse_to_fine(problem, [3], 0, by_role=True)
    coarse = dict(zip(problem.graph.op_names, levels.group_of_op[0], strict=True))
    assert len({coarse[f"p{step}"] for step in range(1, 9)}) == 1
    assert len({coarse[f"t{step}"] for step in range(8)}) == 1
    assert len(set(levels.group_of_op[1])) == problem.num_ops
