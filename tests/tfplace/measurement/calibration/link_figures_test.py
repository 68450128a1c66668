"""What links are and what transfers take, from steps whose times are made up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.tfplace.measurement.calibration.fake_prober import FakeProber
from tfplace.measurement.calibration.device_figures import OpFigures
from tfplace.measurement.calibration.link_figures import (
    BUSY_COUNTS,
    FEW_SIZES,
    SIZES,
    busy_figures,
    choose_rule,
    link_figures,
    measure_busy,
    measure_link,
    measure_rule,
    predicted_seconds,
    sizes_of,
)

CPUS = ("/device:CPU:0", "/device:CPU:1")
OPS = OpFigures(0.0, 1, 1e-2, 4, {1: 1e-2})


@pytest.mark.parametrize(("num_links", "sizes"), [(6, SIZES), (12, FEW_SIZES)])
def test_a_link_by_hand(num_links: int, sizes: tuple[int, ...]) -> None:
    # A step takes 1 ms, a round trip 0.3 ms and half a nanosecond for each byte.
    prober = FakeProber(lambda size, hops: 1e-3 + hops * (3e-4 + size / 2e9))
    link = measure_link(*CPUS, sizes_of(num_links), prober, 0.0)
    assert link.latency_seconds == pytest.approx(1.5e-4)
    assert link.bytes_per_second == pytest.approx(2e9)
    assert link.fit.r_squared == pytest.approx(1.0)
    expected = {size: 3e-4 + size / 2e9 for size in sizes}
    assert link.round_trip_seconds == pytest.approx(expected)


def test_times_that_noise_made_negative_are_left_out() -> None:
    link = link_figures({64: -1e-6, 1000: 2e-3, 2000: 3e-3})
    assert link.bytes_per_second == pytest.approx(1e6)
    assert link.latency_seconds == pytest.approx(0.5e-3)


def test_a_link_without_a_slope_is_as_quick_as_what_was_sent_over_it() -> None:
    link = link_figures({64: 2e-3, 1000: 1e-3})
    assert (link.bytes_per_second, link.latency_seconds) == (1000 / 1e-3, 0.5e-3)


@pytest.mark.parametrize(("product_seconds", "depth"), [(1e-2, 33), (1e-4, 300), (1e-6, 500)])
def test_a_chain_beside_transfers_stays_short(
    monkeypatch: pytest.MonkeyPatch, product_seconds: float, depth: int
) -> None:
    asked = []
    monkeypatch.setattr(
        "tfplace.measurement.calibration.link_figures.products_beside_transfers",
        lambda device, side, depth, transfers: asked.append(depth) or (transfers.num_bytes, 1),
    )
    ops = dataclasses.replace(OPS, product_seconds=product_seconds)
    prober = FakeProber(lambda size, count: 1e-3)
    monkeypatch.setattr(prober, "time", lambda probes, budget: dict.fromkeys(probes, np.ones(4)))
    measure_busy(CPUS[0], CPUS, ops, {64: 33}, prober, 0.0)
    assert asked == [depth, depth]


def test_what_a_transfer_takes_by_hand() -> None:
    # The products take 30 ms, a transfer 30 us and a tenth of a nanosecond for each byte of them.
    prober = FakeProber(lambda size, count: 30e-3 + count * (3e-5 + size * 1e-10))
    busy = measure_busy(CPUS[0], CPUS, OPS, BUSY_COUNTS, prober, 0.0)
    assert busy.fit is not None
    assert busy.fit.fixed_seconds == pytest.approx(3e-5)
    assert busy.fit.seconds_per_unit == pytest.approx(1e-10)
    assert busy.transfer_seconds[1 << 20] == pytest.approx(3e-5 + (1 << 20) * 1e-10)


def test_only_what_is_seen_in_most_rounds_counts_as_busy() -> None:
    steady = np.array([3.0e-5, 2.9e-5, 3.1e-5, 3.0e-5])
    noise = np.array([-1.0, 2.0, -2.0, 1.0]) * 1e-3
    assert busy_figures({64: noise, 1 << 20: noise}).fit is None
    fit = busy_figures({64: steady, 1 << 16: noise, 1 << 20: steady * 20}).fit
    assert fit is not None
    assert fit.fixed_seconds + 64 * fit.seconds_per_unit == pytest.approx(3e-5)
    assert fit.fixed_seconds + (1 << 20) * fit.seconds_per_unit == pytest.approx(6e-4)


@pytest.mark.parametrize("rule", ["duplex", "sender", "half_duplex", "pairwise"])
def test_the_rule_of_three_devices_is_found(rule: str) -> None:
    alone = {(0, 1): 1e-3, (1, 0): 2e-3, (0, 2): 4e-3, (2, 0): 8e-3}

    def seconds(pattern: tuple[tuple[int, int], ...], count: int) -> float:
        return 5e-3 + (count - 1) * predicted_seconds(rule, alone, pattern)

    choice = measure_rule([*CPUS, "/device:CPU:2"], FakeProber(seconds), 0.0)
    assert choice.rule == rule
    assert choice.error_of_rule[rule] == pytest.approx(0.0, abs=1e-9)


def test_one_device_needs_no_rule() -> None:
    assert measure_rule(CPUS[:1], FakeProber(lambda *_: 0.0), 0.0) == choose_rule({}, [])
