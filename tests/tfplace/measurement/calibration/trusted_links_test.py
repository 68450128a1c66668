"""Links' figures that noise has spoilt are measured again, and then not used."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Hashable, Mapping

import numpy as np
import pytest

from graphs.clusters.discovery import find_cluster
from tests.loop.noise import bursts
from tests.tfplace.measurement.calibration.fake_prober import FakeProber
from tfplace.measurement.calibration.device_figures import OpFigures
from tfplace.measurement.calibration.line_fit import fit_line, with_intervals
from tfplace.measurement.calibration.link_figures import (
    SIZES,
    LinkFigures,
    MeasuredLink,
    measure_link,
)
from tfplace.measurement.calibration.probe_graphs import Probe
from tfplace.measurement.calibration.trusted_links import (
    TrustedLinks,
    doubts,
    figures_to_use,
    measured_links,
)

CLUSTER = find_cluster("workers:2")
FIRST, SECOND = CLUSTER.device_names
THERE, BACK = (FIRST, SECOND), (SECOND, FIRST)
OPS = {name: OpFigures(0.0, 1, 1e-3, 384, {1: 1e-3}, 4e10) for name in CLUSTER.device_names}


def _link(rate: float = 2e9, latency: float = 1.5e-4, noise: float = 0.0) -> LinkFigures:
    rng = np.random.default_rng(3)

    def seconds(size: int, hops: int) -> np.ndarray:
        exact = 1e-3 + hops * (2 * latency + size / rate)
        return exact * np.exp(noise * rng.standard_normal(25))

    return measure_link(*THERE, SIZES, FakeProber(seconds, num_rounds=25), 0.0)


def test_a_quiet_link_is_trusted_and_known_well() -> None:
    link = _link(noise=0.01)
    assert doubts(CLUSTER, OPS, {THERE: link, BACK: link}) == {}
    assert link.fit.slope_ci95 is not None
    assert link.fit.slope_ci95[0] <= 1 / 2e9 <= link.fit.slope_ci95[1]
    assert link.fit.fixed_ci95 is not None
    assert link.fit.fixed_ci95[1] - link.fit.fixed_ci95[0] < 0.3 * 3e-4


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (dataclasses.replace(_link(), bytes_per_second=7.95e10), "more than its ends' memory"),
        (
            dataclasses.replace(_link(), fit=fit_line([0, 1000, 2000, 3000], [1, 9, 2, 9])),
            "no line fits its sizes",
        ),
        (_link(noise=1.5), "only known to between|no line fits"),
    ],
)
def test_what_noise_has_spoilt_is_refused(spoilt: LinkFigures, why: str) -> None:
    (told,) = doubts(CLUSTER, OPS, {THERE: spoilt, BACK: _link()}).values()
    assert re.search(why, told)


def test_of_two_ways_that_are_a_hundredfold_apart_none_is_trusted() -> None:
    found = doubts(CLUSTER, OPS, {THERE: _link(2e9), BACK: _link(1e7)})
    assert list(found) == [THERE, BACK]
    assert found[THERE] == "rates of links of its kind are 200 times apart"


def test_a_spoilt_link_is_measured_again_until_it_is_good() -> None:
    asked: list[object] = []

    def measure(pair: tuple[str, str]) -> LinkFigures:
        asked.append(pair)
        return _link() if len(asked) > 1 else dataclasses.replace(_link(), bytes_per_second=7e10)

    trusted = measured_links(CLUSTER, [THERE, BACK], OPS, measure)
    assert (asked, trusted.refused) == ([THERE, BACK, THERE], {})


def test_what_can_not_be_had_stays_assumed_or_is_as_its_kind() -> None:
    bad = dataclasses.replace(_link(), bytes_per_second=1e12)
    trusted = measured_links(CLUSTER, [THERE, BACK], OPS, lambda pair: bad)
    assert set(trusted.refused) == {THERE, BACK}
    assert figures_to_use(CLUSTER, trusted) == {}
    one = TrustedLinks({THERE: bad, BACK: _link(3e9)}, {THERE: "spoilt"})
    assert figures_to_use(CLUSTER, one)[THERE].bytes_per_second == pytest.approx(3e9)


def test_intervals_need_a_time_above_zero() -> None:
    fit = fit_line([1, 2], [1.0, 2.0])
    assert with_intervals(fit, {1: np.array([-1.0, -2.0])}) == fit


class _DisturbedClock:
    """A clock on which another program takes a share of a core, in bursts at random.

    While it works, what runs here gets half of the core: a step takes as long again as it overlaps.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._bursts = bursts(share, random.Random(seed))
        self._now, self._begin, self._end = 0.0, 0.0, 0.0

    def seconds(self, alone: float) -> float:
        began, left = self._now, alone
        while left > 0.0:
            if self._now >= self._end:
                work, pause = next(self._bursts)
                self._begin = self._now + pause
                self._end = self._begin + 2.0 * work  # it gets half of the core, too
            if self._now < self._begin:
                done = min(left, self._begin - self._now)
                self._now += done
            else:
                done = min(left, (self._end - self._now) / 2.0)
                self._now += 2.0 * done
            left -= done
        return self._now - began


class _DisturbedProber(FakeProber):
    """Round by round, as the real one, on a disturbed clock."""

    def __init__(self, seconds_of: Callable[..., float], seed: int) -> None:
        super().__init__(seconds_of, num_rounds=15)
        self._clock, self._rng = _DisturbedClock(0.3, seed), np.random.default_rng(seed)

    def time(
        self, probes: Mapping[Hashable, Probe], budget_seconds: float
    ) -> dict[Hashable, np.ndarray]:
        alone = super().time(probes, budget_seconds)
        noise = np.exp(0.05 * self._rng.normal(size=(15, len(alone))))
        rounds = [
            [self._clock.seconds(each[0] * n) for each, n in zip(alone.values(), row, strict=True)]
            for row in noise
        ]
        return dict(zip(alone, np.array(rounds).T, strict=True))


def _disturbed(
    rate: float, latency: float, seed: int, known: MeasuredLink | None = None
) -> LinkFigures:
    """A link measured beside a program that takes 30 % of a core."""

    def seconds(size: int, hops: int) -> float:
        return 1e-3 + hops * (2 * latency + size / rate)

    return measure_link(*THERE, SIZES, _DisturbedProber(seconds, seed), 0.0, known)


def test_beside_another_program_a_link_is_known_to_a_quarter_or_refused() -> None:
    rate, latency, used, numbers = 3e9, 1.2e-4, 0, itertools.count()
    for _ in range(4):
        trusted = measured_links(
            CLUSTER, [THERE, BACK], OPS, lambda pair: _disturbed(rate, latency, next(numbers))
        )
        for link in figures_to_use(CLUSTER, trusted).values():
            used += 1
            assert link.bytes_per_second == pytest.approx(rate, rel=0.25)
            assert link.latency_seconds == pytest.approx(latency, rel=0.25)
    assert used > 0


def test_what_is_measured_again_counts_with_what_was_measured_before() -> None:
    def width(link: LinkFigures) -> float:
        interval = link.fit.slope_ci95
        assert interval is not None
        return interval[1] - interval[0]

    alone, together = [], []
    for seed in range(2):
        known = MeasuredLink()
        alone += [_disturbed(3e9, 1.2e-4, seed, known)]
        together += [_disturbed(3e9, 1.2e-4, seed + again, known) for again in (10, 20)][1:]
    assert np.mean([*map(width, together)]) < 0.7 * np.mean([*map(width, alone)])
    rates = [link.bytes_per_second for link in together]
    assert rates == pytest.approx([3e9] * 2, rel=0.25)
