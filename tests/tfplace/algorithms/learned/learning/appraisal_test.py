"""Tests of tfplace.algorithms.learned.learning.appraisal."""

import numpy as np

from graphs.problem import Measurement
from tests.builders import chain
from tfplace.algorithms.learned.learning.appraisal import Appraisal


def outcomes(*seconds):
    return [Measurement(value, (), "simulated") for value in seconds]


def test_rewards_are_on_the_problems_scale():
    rewards = Appraisal(chain(4), decay=0.9).rewards(outcomes(4.0, 16.0))
    np.testing.assert_array_equal(rewards, [-1.0, -2.0])


def test_the_first_batch_is_its_own_baseline():
    appraisal = Appraisal(chain(4), decay=0.5)
    np.testing.assert_allclose(appraisal.advantages(np.array([-1.0, -3.0])), [1.0, -1.0])
    # The baseline is -2 now: advantages 1 and 0, root mean square √½.
    np.testing.assert_allclose(appraisal.advantages(np.array([-1.0, -2.0])), [2**0.5, 0.0])
    assert appraisal.state == 0.5 * -2.0 + 0.5 * -1.5


def test_a_failure_in_a_larger_batch_leaves_the_rest_apart():
    rewards = np.array([-1.0, -2.0] * 4 + [-1.5, -20.0])
    # The median is -1.75: advantages ±¼ and ¾, of median size ½ ((¼ + ¾) / 2).
    expected = np.array([0.75, -0.25] * 4 + [0.25, -18.25]) / 0.5 * 0.6745
    expected[-1] = -3.0
    np.testing.assert_allclose(Appraisal(chain(4), decay=0.9).advantages(rewards), expected)


def test_a_failing_start_encourages_all_that_runs():
    appraisal = Appraisal(chain(4), decay=0.9, start=-10.0)
    assert (appraisal.advantages(np.array([-1.0, -3.0])) > 0).all()


def test_state_comes_back():
    one, two = (Appraisal(chain(4), decay=0.9) for _ in range(2))
    two.state = one.state
    assert np.isnan(two.state)
    one.advantages(np.array([-3.0]))
    two.state = one.state
    assert two.state == -3.0


def test_what_does_not_teach_has_no_advantage_and_moves_nothing():
    appraisal = Appraisal(chain(4), decay=0.5)
    found = appraisal.advantages(np.array([-1.0, -20.0, -3.0]), np.array([True, False, True]))
    np.testing.assert_allclose(found, [1.0, 0.0, -1.0])
    before = appraisal.state
    nothing = np.zeros(2, dtype=bool)
    np.testing.assert_array_equal(appraisal.advantages(np.array([-9.0, -9.0]), nothing), [0, 0])
    assert appraisal.state == before == -2.0
