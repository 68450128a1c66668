"""Tests of tfplace.algorithms.table."""

import dataclasses
import sys

import numpy as np
import pytest

from graphs.errors import UsageError
from tests.builders import Machine, Op, build_problem, random_graph, two_towers
from tfplace.algorithms import table
from tfplace.algorithms.placers import earliest_start
from tfplace.algorithms.table import one_shot_starts, policy_of, stages_of
from tfplace.search.instance import Instance

PROBLEM = two_towers(machine=Machine(3))
GIVEN = np.zeros(PROBLEM.num_ops, dtype=np.int32)


@pytest.fixture
def etf_calls(monkeypatch):
    """Counts the runs of m-ETF."""
    calls = []

    def counted(problem, seed):
        calls.append(seed)
        return original(problem, seed)

    original = earliest_start.m_etf
    monkeypatch.setattr(earliest_start, "m_etf", counted)
    return calls


def test_a_one_shot_algorithm_runs_once_for_an_instance_and_a_seed(etf_calls):
    instance = Instance(PROBLEM, GIVEN)
    first = policy_of("etf", instance, 0, None).propose().device_of_op
    starts = one_shot_starts(instance, 0)
    place = list(table.ONE_SHOTS).index("etf")
    np.testing.assert_array_equal(starts[place](), first)
    for name in ("local_search", "annealing"):
        policy = policy_of(name, instance, 0, GIVEN)
        proposals = [policy.propose().device_of_op for _ in range(1 + len(starts))]
        np.testing.assert_array_equal(proposals[1 + place], first)
    assert etf_calls == [0]
    policy_of("etf", instance, 1, None).propose()
    assert etf_calls == [0, 1]


def test_a_changed_instance_is_placed_anew(etf_calls):
    instance = Instance(PROBLEM, GIVEN)
    policy_of("etf", instance, 0, None).propose()
    changed = dataclasses.replace(instance, problem=random_graph())
    assert policy_of("etf", changed, 0, None).propose().device_of_op.shape[1] == 12
    assert etf_calls == [0, 0]


def test_nothing_is_placed_before_its_turn(etf_calls):
    policy = policy_of("annealing", Instance(PROBLEM, GIVEN), 0, None)
    assert etf_calls == []
    for _ in range(3):  # what is known, single devices, m-TOPO
        policy.propose()
    assert etf_calls == []
    policy.propose()
    assert etf_calls == [0]


def test_annealing_begins_with_all_that_is_known():
    expert, best = GIVEN + 1, GIVEN + 2
    proposal = policy_of("annealing", Instance(PROBLEM, GIVEN, expert), 0, best).propose()
    np.testing.assert_array_equal(proposal.device_of_op, [best, GIVEN, expert])
    proposal = policy_of("annealing", Instance(PROBLEM, GIVEN), 0, None).propose()
    np.testing.assert_array_equal(proposal.device_of_op, [GIVEN])
    # Local search may be a baseline: it begins with what the search has found, and no more.
    proposal = policy_of("local_search", Instance(PROBLEM, GIVEN), 0, best).propose()
    np.testing.assert_array_equal(proposal.device_of_op, [best])


def test_large_graphs_do_without_the_slowest_start(monkeypatch):
    monkeypatch.setattr(table, "MAX_SCT_OPS", PROBLEM.num_ops)
    assert len(one_shot_starts(Instance(PROBLEM, GIVEN), 0)) == 6
    monkeypatch.setattr(table, "MAX_SCT_OPS", PROBLEM.num_ops - 1)
    assert len(one_shot_starts(Instance(PROBLEM, GIVEN), 0)) == 5


def test_large_split_steps_begin_with_data_parallelism_alone(monkeypatch):
    split = build_problem([Op(f"a/shard_{m}", outputs=(4,)) for m in range(2)], Machine(2))
    instance = Instance(split, np.zeros(2, np.int32))
    assert one_shot_starts(instance, 0)
    monkeypatch.setattr(table, "MAX_ONE_SHOT_OPS", 1)
    assert one_shot_starts(instance, 0) == [] and table.split_starts(instance, 0)
    assert one_shot_starts(Instance(PROBLEM, GIVEN), 0)


@pytest.mark.parametrize("name", ["given", "expert"])
def test_placements_of_the_model_are_proposed_as_they_are(name):
    policy = policy_of(name, Instance(PROBLEM, GIVEN, GIVEN), 0, None)
    np.testing.assert_array_equal(policy.propose().device_of_op, [GIVEN])
    assert policy.propose() is None


def test_a_model_without_an_expert_is_a_usage_error():
    with pytest.raises(UsageError, match="this model says nothing about it"):
        policy_of("expert", Instance(PROBLEM, GIVEN), 0, None)


def test_auto_goes_on_from_the_best_baseline_and_the_others_start_afresh():
    instance, incumbent = Instance(PROBLEM, GIVEN), GIVEN + 1
    stages = stages_of("auto", instance, 0, incumbent)
    assert [(stage.name, stage.share) for stage in stages] == [("annealing", 1.0)]
    np.testing.assert_array_equal(stages[0].start(None).propose().device_of_op[0], incumbent)
    np.testing.assert_array_equal(stages[0].start(GIVEN + 2).propose().device_of_op[0], GIVEN + 2)
    measured = stages_of("auto", instance, 0, incumbent, is_simulated=False)
    assert [stage.name for stage in measured] == ["local_search", "spotlight"]
    (alone,) = stages_of("local_search", instance, 0, incumbent)
    assert alone.share == 1.0
    assert len(alone.start(None).propose().device_of_op) > 1  # single devices, not the incumbent


def test_names_come_from_the_table_and_unknown_ones_are_told_apart():
    assert table.names()[:3] == ("auto", "given", "expert")
    assert "annealing" not in table.names()
    with pytest.raises(UsageError, match="did you mean 'local_search'"):
        table.require_known("localsearch")


def test_an_algorithm_is_imported_when_it_is_made():
    module = "tfplace.algorithms.learned.group_placer"
    sys.modules.pop(module, None)
    stages = stages_of("auto", Instance(PROBLEM, GIVEN), 0, GIVEN, is_simulated=False)
    assert module not in sys.modules and len(stages) == 2
