import numpy as np
import pytest

from tfplace.fidelity.rank_agreement import RankAgreement, agreement


def test_errors_and_ranks_by_hand():
    # Errors 0, 0.5, -0.5, -0.1; ranks 1 3 4 2 and 1 2 4 3, so 1 - 6 * 2 / (4 * 15).
    found = agreement([1.0, 3.0, 4.0, 2.7], [1.0, 2.0, 8.0, 3.0])
    assert found.spearman == pytest.approx(0.8)
    assert found.median_abs_relative_error == pytest.approx(0.3)
    assert found.p90_abs_relative_error == pytest.approx(0.5)


def test_ties_share_their_mean_rank():
    assert agreement([1.0, 1.0, 2.0], [1.0, 1.0, 3.0]).spearman == pytest.approx(1.0)


@pytest.mark.parametrize("predicted", [[1.0], [2.0, 2.0]])
def test_no_rank_correlation_of_one_or_of_equals(predicted):
    measured = np.arange(1.0, len(predicted) + 1)
    assert agreement(predicted, measured).spearman is None


def test_none_is_an_error_and_equals_agree():
    assert agreement([1.0, 2.0], [1.0, 2.0]) == RankAgreement(1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="found none"):
        agreement([], [])
