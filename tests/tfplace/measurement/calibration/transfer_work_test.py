"""What transfers take of the ends of links, of hand-sized figures."""

import numpy as np
import pytest

from graphs.clusters.discovery import find_cluster
from tfplace.measurement.calibration.line_fit import LineFit
from tfplace.measurement.calibration.link_figures import BusyFigures
from tfplace.measurement.calibration.trusted_links import (
    shared_fixed_seconds,
    shared_seconds_per_byte,
    transfer_work,
)

FIT = LineFit(0.0, 0.0, 0.0, 1.0)
NOTHING = BusyFigures(None, {64: -1e-6, 1000: 2e-6})


def busy(fixed: float, per_byte: float) -> BusyFigures:
    return BusyFigures(FIT, {size: fixed + size * per_byte for size in (0, 1000, 10_000, 100_000)})


def test_links_of_one_kind_share_what_was_seen() -> None:
    cluster = find_cluster("workers:2")
    first, second = cluster.device_names
    there, back = (first, second), (second, first)
    work = transfer_work(
        cluster,
        {there: busy(3e-5, 2e-10), back: busy(3e-5, 2e-10)},
        {there: busy(5e-5, 3e-10), back: busy(7e-5, 3e-10)},
    )
    np.testing.assert_allclose(work.sender_seconds, [[0, 3e-5], [3e-5, 0]])
    np.testing.assert_allclose(work.receiver_seconds, [[0, 6e-5], [6e-5, 0]])
    np.testing.assert_allclose(work.sender_seconds_per_byte, [[0, 2e-10], [2e-10, 0]])
    low, high = 3e-10 - 1e-5 / 1e5, 3e-10 + 1e-5 / 1e5  # the largest size weighs most
    assert low <= work.receiver_seconds_per_byte[0, 1] <= high
    assert work.receiver_seconds_per_byte[0, 1] == work.receiver_seconds_per_byte[1, 0]


def test_nothing_is_taken_where_most_links_show_nothing() -> None:
    assert shared_fixed_seconds([NOTHING, NOTHING, busy(1e-5, 0.0)]) is None
    assert shared_fixed_seconds([NOTHING, busy(1e-5, 0.0)]) == 1e-5
    cluster = find_cluster("workers:2")
    pairs = [tuple(cluster.device_names), tuple(reversed(cluster.device_names))]
    nothing = dict.fromkeys(pairs, NOTHING)
    assert transfer_work(cluster, nothing, nothing) is None


def test_the_slope_is_robust_against_one_size() -> None:
    disturbed = {0: 1e-5, 1000: 1.1e-5, 10_000: 2e-5, 100_000: 9e-4}
    assert shared_seconds_per_byte([BusyFigures(FIT, disturbed)], 1e-5) == pytest.approx(1e-9)
    assert shared_seconds_per_byte([NOTHING], 3e-6) == 0.0  # never negative
    calm = {
        0: 1e-5,
        1000: 1.3e-5,
        10_000: 4e-5,
        100_000: 3.1e-4,
    }  # 3 ns a byte, outweighing the other's 1
    both = [BusyFigures(FIT, disturbed), BusyFigures(FIT, calm)]
    assert shared_seconds_per_byte(both, 1e-5) == pytest.approx(3e-9)
