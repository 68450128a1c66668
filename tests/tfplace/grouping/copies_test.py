"""Tests of tfplace.grouping.copies."""

from graphs.names import original_name
from tests.builders import Machine, Op, build_problem, chain
from tests.split_steps import split_step
from tfplace.grouping.copies import is_split, shard_of_op, tied_copies


def _groups(problem):
    names = problem.graph.op_names
    found = {}
    for name, group in zip(names, tied_copies(problem).group_of_op.tolist(), strict=True):
        found.setdefault(group, set()).add(name)
    return list(found.values())


def test_names_say_which_shard_an_op_works_for():
    problem = build_problem(
        [Op("a"), Op("a/shard_0"), Op("a/shard_11/part"), Op("a/shard_x"), Op("b_shard_1"),
         Op("a/shard_2__")],  # the name was taken
        Machine(),
    )  # fmt: skip
    assert shard_of_op(problem).tolist() == [-1, 0, 11, -1, -1, 2]
    assert original_name("a/shard_2__") == "a"
    assert is_split(problem) and not is_split(chain(3))
    assert (
        original_name("a/shard_11/part") == "a/part" and original_name("a/shard_x") == "a/shard_x"
    )


def test_all_copies_of_an_op_are_tied_and_nothing_else():
    groups = _groups(split_step(3))
    assert {"l0/shard_0", "l0/shard_1", "l0/shard_2"} in groups
    assert {"w0", "update0"} in groups  # a colocation group
    assert {"grad/l0/summed"} in groups and {"x/cut"} in groups


def test_copies_that_may_use_different_devices_are_not_tied():
    ops = [Op("a/shard_0"), Op("a/shard_1", pin=1), Op("a/shard_2")]
    assert {"a/shard_0", "a/shard_2"} in _groups(build_problem(ops, Machine()))


def test_an_op_of_the_name_of_a_copy_is_not_tied_to_it():
    groups = _groups(build_problem([Op("a"), Op("a/shard_0"), Op("a/shard_1")], Machine()))
    assert groups == [{"a"}, {"a/shard_0", "a/shard_1"}]
