"""Rewards by hand; whatever the outcome, they are finite and in order."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.problem import Infeasible, Measurement
from tests.builders import Op, build_problem
from tfplace.algorithms.learned.learning.appraisal import (
    feasible,
    penalised_seconds,
    reference_seconds,
    reward,
    rewards,
)

USABLE = np.array([10.0, 10.0])


def measured(seconds):
    return Measurement(seconds, (), "simulated")


def test_reward_is_minus_the_root_of_the_relative_time():
    assert reward(measured(8.0), 2.0, USABLE) == -2.0
    assert reward(measured(0.5), 2.0, USABLE) == -0.5


def test_a_very_slow_step_is_worth_no_less_than_the_bound():
    assert reward(measured(1e9), 1.0, USABLE) == -10.0


def test_overflow_is_graded():
    barely = Infeasible("memory", "", (12, 10))
    far = Infeasible("memory", "", (30, 10))
    assert reward(barely, 1.0, USABLE) == pytest.approx(-10.0 * (1 + 0.1 / 1.1))
    assert reward(far, 1.0, USABLE) == pytest.approx(-15.0)


@pytest.mark.parametrize(
    "outcome",
    [
        Infeasible("crash", "", (12, 10)),
        Infeasible("memory", "not known by how much"),
        measured(math.nan),
        measured(math.inf),
        measured(-1.0),
    ],
)
def test_other_failures_are_worth_the_least(outcome):
    assert reward(outcome, 1.0, USABLE) == -20.0
    assert not feasible([outcome])[0]


ANY_SECONDS = st.floats(allow_nan=True) | st.floats(0.0, 1e4)
FAILURES = st.one_of(
    st.builds(Infeasible, st.sampled_from(["crash", "timeout", "memory"]), st.just("")),
    st.builds(Infeasible, st.just("memory"), st.just(""), st.tuples(*[st.integers(0, 10**15)] * 2)),
)


@given(st.builds(measured, ANY_SECONDS) | FAILURES, st.builds(measured, ANY_SECONDS) | FAILURES)
def test_what_runs_is_worth_more_and_quicker_more_still(one, other):
    worth_one, worth_other = rewards([one, other], 3.0, USABLE)
    assert -20.0 <= worth_one <= 0.0
    runs_one, runs_other = feasible([one, other])
    if (runs_one and not runs_other) or (runs_one and one.step_seconds <= other.step_seconds):
        assert worth_one >= worth_other


def test_rewards_of_several():
    outcomes = [measured(4.0), Infeasible("timeout", "")]
    np.testing.assert_array_equal(rewards(outcomes, 1.0, USABLE), [-2.0, -20.0])
    np.testing.assert_array_equal(feasible(outcomes), [True, False])


def test_reference_is_each_op_on_its_fastest_device():
    ops = [
        Op("a", seconds=(5.0, 2.0)),
        Op("b", seconds=(3.0, math.inf)),
        Op("c", (4.0, 1.0), pin=0),
    ]
    assert reference_seconds(build_problem(ops)) == 2.0 + 3.0 + 4.0


def test_reference_of_free_ops_is_one():
    assert reference_seconds(build_problem([Op("a", seconds=0.0)])) == 1.0


def test_penalised_seconds():
    usable = np.array([1e9, 1e9])
    over = Infeasible("memory", "", (3_000_000_000, 1), step_seconds=4.0)
    assert penalised_seconds(measured(4.0), 1.0, usable) == 4.0
    assert penalised_seconds(over, 1.0, usable) == 8.0
    assert penalised_seconds(Infeasible("memory", "", (10**12, 1), 4.0), 1.0, usable) == 14.0
    assert penalised_seconds(Infeasible("crash", ""), 1.0, usable) == 110.0
    assert penalised_seconds(measured(math.nan), 2.0, usable) == 200.0
