"""Which of the best few placements real runs choose, and why the others lose."""

from __future__ import annotations

import numpy as np

from graphs.problem import Infeasible, Measurement
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.real_runs.finalists import judged

PROBLEM = build_problem([Op("a"), Op("b")], Machine(3))


def _rival(name, *device_of_op):
    return Candidate(name, np.array(device_of_op, np.int32), Measurement(1.0, (0, 0, 0), ""))


def test_the_fastest_wins_and_the_others_say_why_not():
    rivals = [_rival("first", 1, 1), _rival("second", 1, 2), _rival("third", 0, 2)]
    results = [3.0, 2.0, Infeasible("crash", "it crashed")]
    winner, tried = judged(PROBLEM, rivals, results)
    assert winner is rivals[1]
    assert [(each.name, each.measured_seconds, each.why) for each in tried] == [
        ("first", 3.0, "1.50 times as long as the fastest"),
        ("second", 2.0, "the fastest of these"),
        ("third", None, "could not run: it crashed"),
    ]


def test_of_equally_fast_ones_fewer_devices_win():
    rivals = [_rival("two", 1, 2), _rival("one", 1, 1)]
    winner, tried = judged(PROBLEM, rivals, [2.0, 2.01])
    assert winner is rivals[1]
    assert [each.why for each in tried] == [
        "as fast, but needs more devices or transfers",
        "as fast, and needs less",
    ]


def test_where_none_can_be_measured_the_first_stays():
    rivals = [_rival("first", 1, 1), _rival("second", 1, 2)]
    winner, _ = judged(PROBLEM, rivals, [Infeasible("crash", "it crashed")] * 2)
    assert winner is rivals[0]
