"""Seconds, bytes and shares as a person reads them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.units_text import bytes_text, cost_sentence, count_text, seconds_text, share_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"), (math.inf, "-"), (math.nan, "-"), (0.0, "0 µs"), (1.234e-7, "0.123 µs"),
        (0.9999e-3, "1000 µs"), (1e-3, "1 ms"), (0.001234, "1.23 ms"), (0.99999, "1000 ms"),
        (-0.25, "-250 ms"), (-1.67e-16, "0 µs"),
        (1.0, "1 s"), (59.96, "60 s"), (999.9, "1000 s"), (1000.0, "1,000 s"), (86400, "86,400 s"),
    ],
)  # fmt: skip
def test_seconds(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (-1536, "-1.5 KiB"),
        (1023 * 1024, "1023 KiB"), (1024**2, "1 MiB"), (12.3 * 1024**3, "12.3 GiB"),
        (5000 * 1024**3, "5000 GiB"),
    ],
)  # fmt: skip
def test_bytes(count, text):
    assert bytes_text(count) == text


@given(st.floats(1e-9, 999.0), st.integers(0, 2**50))
def test_numbers_are_within_their_three_digits_and_never_powers_of_ten(seconds, count):
    number, unit = seconds_text(seconds).split()
    assert "e" not in number
    factor = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=0.0051)
    number, unit = bytes_text(count).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)
    assert "e" not in number
    assert float(number) * factor == pytest.approx(count, rel=0.0051)


def test_shares():
    assert [share_text(share) for share in (0.0, 0.004, 0.126, 1.5)] == [
        "0 %",
        "0 %",
        "13 %",
        "150 %",
    ]


def test_costs_say_how_ops_were_priced():
    costs = {"source": "analytic", "covered_ops": 0.5, "wall_time_coverage": None}
    assert cost_sentence(costs) == "analytic, 50 % of the ops priced"
    costs = {
        "source": "measured", "covered_ops": 1.0, "wall_time_coverage": 0.876, "traced_ops": 1234,
        "fused_ops": 5, "scaled_ops": 0, "analytic_ops": 6,
    }  # fmt: skip
    assert cost_sentence(costs) == (
        "measured, 100 % of the ops priced (1,234 traced, 5 folded or fused, 6 analytic); traced "
        "ops are 88 % of a step's wall time"
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (43080.4, "43,080"), (4.31e6, "4.31 M"), (2.5e12, "2.5 T"), (1e21, "1000000 P")],
)
def test_counts_are_whole_numbers_or_have_a_prefix(count, text):
    assert count_text(count) == text
