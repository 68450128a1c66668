"""Ranks and errors of predictions, by hand and against SciPy's own rank correlation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from tfplace.fidelity.study import RankAgreement, agreement, relative_errors, reliability, spearman

# Few distinct values, so that there are ties.
STEP_SECONDS = st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 7.0]), min_size=2, max_size=12)


def test_errors_and_ranks_by_hand():
    # Errors 0, 0.5, -0.5, -0.1; ranks 1 3 4 2 and 1 2 4 3, so 1 - 6 * 2 / (4 * 15).
    assert agreement([1.0, 3.0, 4.0, 2.7], [1.0, 2.0, 8.0, 3.0]) == RankAgreement(
        pytest.approx(0.8), pytest.approx(0.3), pytest.approx(0.5)
    )


def test_ties_share_their_mean_rank():
    # Ranks 1.5 1.5 3 and 1 2 3: 1.5 / sqrt(1.5 * 2).
    result = agreement([1.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    assert result.spearman == pytest.approx(np.sqrt(3) / 2)


@pytest.mark.parametrize("predicted", [[1.0], [2.0, 2.0]])
def test_no_rank_correlation_of_one_or_of_equals(predicted):
    measured = np.arange(1.0, len(predicted) + 1)
    assert agreement(predicted, measured).spearman is None


def test_none_is_an_error_and_equals_agree():
    assert agreement([1.0, 2.0], [1.0, 2.0]) == RankAgreement(1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="found none"):
        agreement([], [])


@given(st.data())
def test_scipy_agrees(data):
    first = np.array(data.draw(STEP_SECONDS))
    second = np.array(data.draw(st.permutations(first.tolist())))
    mine = spearman(first, second)
    if len(set(first.tolist())) == 1:
        assert mine is None
    else:
        assert mine == pytest.approx(spearmanr(first, second).statistic)


@given(STEP_SECONDS)
def test_ranks_know_only_order_and_errors_only_ratios(seconds):
    measured = np.array(seconds)
    assert relative_errors(3.0 * measured, measured) == pytest.approx(2.0)
    slower = agreement(measured**3, measured)
    assert slower.spearman is None or slower.spearman == pytest.approx(1.0)
    faster = agreement(1.0 / measured, measured)
    assert faster.spearman is None or faster.spearman == pytest.approx(-1.0)


def test_quiet_runs_have_reliable_ranks_and_noise_has_none():
    rng = np.random.default_rng(0)
    steps = np.linspace(1.0, 2.0, 30)[:, None]
    quiet = steps * np.exp(0.001 * rng.standard_normal((30, 8)))
    assert reliability(list(quiet)) == pytest.approx(1.0, abs=1e-3)
    noise = np.exp(rng.standard_normal((30, 8)))
    assert reliability(list(noise)) < 0.5
    between = reliability(list(steps * np.exp(0.3 * rng.standard_normal((30, 8)))))
    assert 0.5 < between < 0.99


def test_reliability_is_about_what_a_repetition_of_the_runs_agrees_to():
    rng = np.random.default_rng(1)
    steps = np.linspace(1.0, 2.0, 200)[:, None]
    first, again = (steps * np.exp(0.4 * rng.standard_normal((200, 6))) for _ in range(2))
    repeated = spearman(np.median(first, axis=1), np.median(again, axis=1))
    assert reliability(list(first)) == pytest.approx(repeated, abs=0.07)


@pytest.mark.parametrize("runs", [[], [np.ones(5)], [np.ones(1), np.ones(1)]])
def test_too_few_runs_say_nothing_of_reliability(runs):
    assert reliability(runs) is None
    assert agreement([1.0], [1.0], runs).reliability is None
