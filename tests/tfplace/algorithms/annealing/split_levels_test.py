"""Tests of tfplace.algorithms.annealing.levels."""

import numpy as np

from tests.builders import chain, unrolled_lstm
from tests.split_steps import split_step
from tfplace.algorithms.annealing.levels import LevelsInTurn, coarse_to_fine
from tfplace.grouping.copies import shard_of_op, tied_copies


def _coarse(problem, turn, sizes=(4, 6, 12)):
    return LevelsInTurn(problem, sizes).levels(0, turn).group_of_op[:-1]


def test_on_even_turns_no_group_has_ops_of_two_shards():
    problem = split_step(3, num_layers=4)
    shard = shard_of_op(problem)
    for level in _coarse(problem, 0):
        for group in set(level.tolist()):
            assert len(set(shard[level == group].tolist())) == 1


def test_the_coarsest_of_these_has_whole_shards_and_roles():
    problem = split_step(3, num_layers=4)
    names = np.array(problem.graph.op_names)
    coarsest = _coarse(problem, 0)[0]
    groups = [set(names[coarsest == group]) for group in set(coarsest.tolist())]
    for m in range(3):
        assert {name for name in names if name.endswith(f"/shard_{m}")} in groups
    for layer in range(4):
        assert {f"w{layer}", f"update{layer}", f"grad/l{layer}/summed"} in groups


def test_on_odd_turns_copies_are_not_parted_while_there_are_fewer_groups():
    problem = split_step(3, num_layers=4)
    ties = tied_copies(problem).group_of_op
    for level in _coarse(problem, 1):
        for tie in set(ties.tolist()):
            assert len(set(level[ties == tie].tolist())) == 1


def test_a_mostly_repeated_graph_is_grouped_by_role_on_all_turns():
    problem = unrolled_lstm(2, 20)
    by_role = coarse_to_fine(problem, (4, 8), 5, by_role=True)
    assert not np.array_equal(
        by_role.group_of_op, coarse_to_fine(problem, (4, 8), 5, by_role=False).group_of_op
    )
    for turn in (0, 1):
        found = LevelsInTurn(problem, (4, 8)).levels(5, turn)
        assert np.array_equal(found.group_of_op, by_role.group_of_op)


def test_a_step_that_is_not_split_has_the_levels_that_it_had():
    problem = chain(30)
    for turn in (0, 1):
        found = LevelsInTurn(problem, (4, 8)).levels(5, turn)
        wanted = coarse_to_fine(problem, (4, 8), 5, by_role=turn == 1)
        assert np.array_equal(found.group_of_op, wanted.group_of_op)
