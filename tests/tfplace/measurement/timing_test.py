from collections.abc import Callable

import numpy as np
import pytest

from tfplace.measurement import timing
from tfplace.measurement.timing import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Speedup,
    Timing,
    confidence_of_look,
    drift,
    is_precise,
    looks_at,
    num_outliers,
    speedup,
    summarize,
)


def test_summary_of_eleven_runs() -> None:
    assert summarize(np.arange(1.0, 12.0)) == Timing(6.0, 2.0, 10.0, 11)


def test_an_outlier_does_not_move_the_median() -> None:
    assert summarize([1.0, 1.0, 1.0, 1.0, 900.0]).median_seconds == 1.0


def test_no_runs_is_an_error() -> None:
    with pytest.raises(ValueError, match="found none"):
        summarize([])


def test_constant_times_have_an_exact_speedup() -> None:
    result = speedup(np.full(10, 3.0), np.full(10, 2.0), seed=0)
    assert (result.ratio, result.ci95) == (1.5, (1.5, 1.5))


def test_load_common_to_both_runs_of_a_round_cancels() -> None:
    load = np.array([1.0, 1.1, 1.3, 1.0, 2.0, 1.7, 1.2, 1.05, 1.4, 1.9, 1.6])
    paired = speedup(2.0 * load, load, seed=1)
    np.testing.assert_allclose(paired.ci95, (2.0, 2.0))
    shuffled = speedup(2.0 * load, load[::-1], seed=1)
    assert shuffled.ci95[0] < 1.9 and shuffled.ci95[1] > 2.1


def test_same_seed_same_interval_and_it_holds_the_ratio() -> None:
    generator = np.random.default_rng(0)
    baseline, placed = 2 + generator.random(30), 1 + generator.random(25)
    first = speedup(baseline, placed, seed=7)
    assert first == speedup(baseline, placed, seed=7)
    assert first.ci95[0] < first.ratio < first.ci95[1]


def test_looks_double_until_the_last() -> None:
    assert looks_at(10, 100) == (10, 20, 40, 80, 100)
    assert looks_at(10, 10) == (10,)


def test_looks_share_five_percent() -> None:
    assert confidence_of_look((10,)) == 0.95
    np.testing.assert_allclose(confidence_of_look((10, 20, 40, 80, 100)), 1 - 0.05 / 6)


@pytest.mark.parametrize(
    ("ci95", "verdict", "is_clear"),
    [
        ((1.01, 1.30), FASTER, True),
        ((0.70, 0.99), SLOWER, True),
        ((0.90, 1.10), NO_DIFFERENCE, False),
        ((0.99, 1.01), NO_DIFFERENCE, True),
        ((1.00, 1.50), NO_DIFFERENCE, False),
    ],
)
def test_a_verdict_is_what_the_interval_allows(
    ci95: tuple[float, float], verdict: str, is_clear: bool
) -> None:
    found = Speedup(1.0, ci95)
    assert (found.verdict, found.is_clear) == (verdict, is_clear)


def _lognormal(generator: np.random.Generator) -> np.ndarray:
    return np.exp(0.05 * generator.standard_normal((2, 100)))


def _heavy_tailed(generator: np.random.Generator) -> np.ndarray:
    return 1.0 + 0.02 * np.abs(generator.standard_t(2, (2, 100)))


def _bursts_of_load(generator: np.random.Generator) -> np.ndarray:
    load = np.where(generator.random(100) < 0.3, 1.5, 1.0)
    return load * np.exp(0.03 * generator.standard_normal((2, 100)))


def _wandering(generator: np.random.Generator) -> np.ndarray:
    speed = np.cumsum(0.02 * generator.standard_normal(200))
    return np.exp(speed + 0.01 * generator.standard_normal(200)).reshape(100, 2).T


def _stopped(baseline: np.ndarray, placed: np.ndarray) -> tuple[str, int]:
    """Verdict and number of rounds of a comparison that stops when it is clear."""
    looks = looks_at(10, 100)
    for rounds in looks:
        gain = speedup(baseline[:rounds], placed[:rounds], 0, confidence_of_look(looks))
        if gain.is_clear:
            break
    return gain.verdict, rounds


@pytest.mark.parametrize("noise", [_lognormal, _heavy_tailed, _bursts_of_load, _wandering])
def test_equal_graphs_are_seldom_called_different(
    noise: Callable[[np.random.Generator], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 80 comparisons, 4 are expected at 5 %; 8 or more would come once in 20 times."""
    monkeypatch.setattr(timing, "NUM_RESAMPLES", 1000)
    verdicts = [_stopped(*noise(np.random.default_rng(seed)))[0] for seed in range(80)]
    assert verdicts.count(FASTER) <= 4
    assert verdicts.count(SLOWER) <= 4
    assert len(verdicts) - verdicts.count(NO_DIFFERENCE) <= 7


def test_a_large_difference_is_clear_at_once_and_a_small_one_later() -> None:
    large, small = [], []
    for seed in range(30):
        baseline, placed = _lognormal(np.random.default_rng(seed))
        large.append(_stopped(1.5 * baseline, placed))
        small.append(_stopped(1.05 * baseline, placed))
    assert large == [(FASTER, 10)] * 30
    assert [verdict for verdict, _ in small].count(FASTER) >= 27
    assert np.mean([rounds for _, rounds in small]) > 20


def test_outliers_lie_far_from_the_others() -> None:
    times = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 3.0, 0.99, 0.2]
    assert num_outliers(times) == 2
    assert num_outliers([1.0, 1.0, 1.0, 1.001]) == 0
    assert num_outliers([1.0, 1.0, 1.0, 2.0]) == 1


def test_drift_is_a_change_that_is_no_chance() -> None:
    generator = np.random.default_rng(0)
    steady = 1.0 + 0.01 * generator.standard_normal(40)
    assert drift(steady) == 0.0
    slower = np.where(np.arange(40) < 20, steady, 1.3 * steady)
    np.testing.assert_allclose(drift(slower), 0.3, atol=0.02)
    assert drift(np.where(np.arange(40) < 20, 1.0, 1.01)) == 0.0
    assert drift([1.0, 1.0, 2.0, 2.0]) == 0.0


def test_a_median_is_precise_when_its_interval_is_short() -> None:
    generator = np.random.default_rng(0)
    assert is_precise(1.0 + 0.001 * generator.standard_normal(10), seed=0)
    assert not is_precise(1.0 + 0.1 * generator.standard_normal(10), seed=0)
