import numpy as np
import pytest

from tfplace.evaluation.timing import Summary, speedup, summarize


def test_summary_of_eleven_runs() -> None:
    assert summarize(np.arange(1.0, 12.0)) == Summary(6.0, 2.0, 10.0, 11)


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
