"""Step times of several rounds, one of which had a slower machine."""

import numpy as np
import pytest

from tfplace.choosing.real_runs.knowledge import LEAST_NOISE, StepTimes


def test_a_slower_round_makes_no_placement_look_slower():
    times = StepTimes()
    times.add_round({"a": np.full(5, 2.0), "b": np.full(5, 1.0)})
    times.add_round({"b": np.full(5, 1.5), "c": np.full(5, 1.4)})
    seconds = times.seconds()
    assert seconds == {"a": pytest.approx(3.0), "b": pytest.approx(1.5), "c": pytest.approx(1.4)}
    assert times.num_runs == 20


def test_rounds_that_share_nothing_are_taken_as_they_are():
    times = StepTimes()
    times.add_round({"a": np.full(3, 2.0)})
    times.add_round({"b": np.full(3, 1.0)})
    assert times.seconds() == {"a": pytest.approx(2.0), "b": pytest.approx(1.0)}


def test_a_stall_changes_no_median_and_little_noise():
    times = StepTimes()
    times.add_round({"a": np.array([1.0, 1.01, 0.99, 30.0, 1.0])})
    assert times.seconds()["a"] == pytest.approx(1.0)
    assert LEAST_NOISE <= times.noise()["a"] < 0.02


def test_a_placement_without_a_run_is_not_there():
    times = StepTimes()
    times.add_round({"a": np.empty(0), "b": np.ones(1)})
    assert set(times.seconds()) == {"b"}
