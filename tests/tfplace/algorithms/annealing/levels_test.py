import numpy as np

from graphs.placement import Grouping
from tests.builders import Machine, Op, build_problem
from tfplace.algorithms.annealing.levels import levels_of
from tfplace.grouping.quotient import colocation_units


def test_levels_are_laid_out_one_after_another():
    ops = [
        Op("a", 2.0, colocation=0),
        Op("b", 1.0, ("a:0",), pin=1),
        Op("c", 1.0, ("b:0",)),
        Op("d", 1.0, ("c:0",), colocation=0),
    ]
    problem = build_problem(ops, Machine(2))
    pair = Grouping(np.array([0, 1, 0, 0], dtype=np.int32), 2)
    units = colocation_units(problem.graph)
    levels = levels_of(problem, [pair, units])
    assert levels.member_row.tolist() == [0, 3, 4, 5, 7, 8]
    assert levels.member.tolist() == [0, 2, 3, 1, 1, 0, 3, 2]
    # Group 1 and unit 2 hold the pinned op.
    assert levels.free_row.tolist() == [0, 1, 3]
    assert levels.free.tolist() == [0, 3, 4]
    assert levels.edge_row.tolist() == [0, 2, 5]
    assert list(zip(levels.edge_source, levels.edge_target, strict=True)) == [
        (0, 1), (1, 0), (3, 2), (2, 4), (4, 3)
    ]  # fmt: skip
    assert (
        levels.allowed.tolist() == [[True, True], [False, True], [False, True]] + [[True, True]] * 2
    )
    assert np.allclose(levels.device_limits[0], [0.25, 0.5])
    assert levels.unit_of_op.tolist() == units.group_of_op.tolist()
