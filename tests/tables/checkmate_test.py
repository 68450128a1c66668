"""Checkmate's bound on chains whose best plans are known."""

import numpy as np
import pytest

from tests.tables.checkmate import Pieces, least_seconds, peak, planned_seconds


def there_and_back(length, seconds=1.0):
    """Each piece is read by the next, and once more on the way back, last first."""
    reads = [[]] + [[k] for k in range(length)]
    for k in reversed(range(length)):
        reads.append([len(reads) - 1, k])
    count = len(reads)
    return Pieces(np.full(count, seconds), np.full(count, 100.0), reads)


def test_nothing_takes_longer_where_all_fits():
    pieces = there_and_back(6)
    whole = pieces.seconds.sum()
    assert least_seconds(pieces, peak(pieces)) == pytest.approx(whole)
    assert planned_seconds(pieces, peak(pieces)) == pytest.approx(whole)


@pytest.mark.parametrize("share", [0.8, 0.6, 0.5])
def test_no_plan_beats_the_bound(share):
    pieces = there_and_back(10)
    bound, plan = (find(pieces, share * peak(pieces)) for find in (least_seconds, planned_seconds))
    assert pieces.seconds.sum() < bound <= plan < np.inf


def test_one_tensor_too_much_is_made_again_once():
    # Six tensors are held at once; with room for five the cheapest plan makes one of them again.
    pieces = there_and_back(4)
    assert peak(pieces) == 600
    assert least_seconds(pieces, 500.0) == pytest.approx(pieces.seconds.sum() + 1.0, abs=0.5)
    assert planned_seconds(pieces, 500.0) == pytest.approx(pieces.seconds.sum() + 1.0)


def test_what_one_piece_needs_at_once_is_the_least():
    pieces = there_and_back(4)
    assert least_seconds(pieces, 90.0) == planned_seconds(pieces, 90.0) == np.inf
