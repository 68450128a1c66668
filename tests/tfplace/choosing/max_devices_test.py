"""A whole search on fewer devices than the cluster has."""

import dataclasses

import numpy as np
import pytest

from graphs.problem import Infeasible
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.choose import choose
from tfplace.choosing.find_placement import find_placement, without_idle_devices
from tfplace.choosing.memory_limit import LIMIT, at_most
from tfplace.choosing.real_runs.compare import placements_to_compare
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.progress import Progress
from tfplace.search.instance import Instance

TOWERS = [Op(f"tower{i}", [9.0, 1.0, 1.0, 1.0, 1.0]) for i in range(4)]


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """What a search needs of a PreparedModel."""

    problem: object
    given: object
    instance: object
    cluster: object
    unlimited: object = None
    split: object = None
    is_present: bool = False


@pytest.fixture
def prepared():
    machine = Machine(5, bandwidth=1e9)
    problem = build_problem(TOWERS, machine)
    given = np.array([1, 2, 3, 4], np.int32)
    return _Prepared(problem, given, Instance(problem, given), machine.cluster())


def _searched(prepared, **options):
    limits = OptimizeOptions(ProblemOptions("m.pb"), max_trials=300, budget_seconds=4.0, **options)
    limited = at_most(prepared, limits.max_devices)
    instance = Instance(limited.problem, prepared.given)
    whole = _Prepared(
        limited.problem, prepared.given, instance, prepared.cluster, limited.unlimited
    )
    searched = find_placement(whole, limits, None, None, Progress())
    return whole, without_idle_devices(whole.problem, searched)


@pytest.mark.parametrize(("most", "seconds"), [(1, 4.0), (2, 2.0), (3, 2.0), (4, 1.0), (9, 1.0)])
def test_no_more_devices_are_used_than_allowed(prepared, most, seconds):
    limited, searched = _searched(prepared, max_devices=most, algorithm="local_search")
    choice = choose([*searched.candidates, *searched.fewer], limited.problem)
    assert choice.candidate.step_seconds == seconds
    assert len(np.unique(choice.candidate.device_of_op)) <= most


def test_auto_begins_with_what_half_of_the_devices_reached(prepared):
    limits = OptimizeOptions(ProblemOptions("m.pb"), max_trials=1200, budget_seconds=20.0)
    searched = find_placement(prepared, limits, None, None, Progress())
    steps = {each.name: each.step_seconds for each in searched.candidates}
    assert steps["found first on 2"] == 2.0 and steps["found by auto"] == 1.0
    assert searched.result.num_trials <= 1200 - 240
    again = find_placement(prepared, limits, None, None, Progress(), earlier=searched)
    names = [each.name for each in again.candidates]
    assert names.count("found first on 2") == 1  # once is enough


def test_a_given_placement_on_more_devices_is_out_and_is_not_timed(prepared):
    _, searched = _searched(prepared, max_devices=2)
    given = searched.baselines[0]
    assert given.name == "given" and isinstance(given.outcome, Infeasible)
    assert (given.outcome.reason, given.outcome.message) == (
        LIMIT,
        "it uses 4 devices, and --max_devices=2",
    )
    best = searched.candidates[-1]
    assert set(placements_to_compare(searched.candidates, best)) == {"single", "placed"}


def test_without_a_limit_three_devices_that_gain_nothing_over_two_are_not_used(prepared):
    ops = [*TOWERS[:3], Op("nothing", 0.0)]
    problem = build_problem(ops, Machine(5, bandwidth=1e9))
    limited, searched = _searched(dataclasses.replace(prepared, problem=problem))
    choice = choose([*searched.candidates, *searched.fewer], limited.problem)
    assert choice.candidate.step_seconds == 1.0
    assert len(np.unique(choice.candidate.device_of_op)) == 3  # given takes four
