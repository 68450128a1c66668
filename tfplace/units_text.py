"""Seconds, bytes and counts as a person reads them."""

import math
from collections.abc import Mapping
from typing import Any

ROUNDED = 1e-13
"""Seconds that are nothing but what is left of a difference of two times."""


def seconds_text(seconds: float | None) -> str:
    """0.00123 -> "1.23 ms"; None or inf -> "-"."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    size = abs(seconds)
    if size < ROUNDED:
        seconds = 0.0
    if size >= 1000:
        return f"{seconds:,.0f} s"
    factor, unit = (1.0, "s") if size >= 1 else (1e3, "ms") if size >= 1e-3 else (1e6, "µs")
    return f"{_short(seconds * factor)} {unit}"


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    power = min(math.floor(math.log(abs(count), 1024)), 3)
    return f"{_short(count / 1024**power)} {('KiB', 'MiB', 'GiB')[power - 1]}"


def count_text(count: float) -> str:
    """43080.0 -> "43,080"; 4.3e9 -> "4.3 G"."""
    if count < 1e6:
        return f"{count:,.0f}"
    power = min(int(math.log10(count)) // 3, 5)
    return f"{_short(count / 1000**power)} {' kMGTP'[power]}"


def _short(number: float) -> str:
    """Three digits, but never a power of ten: "0.123", "12.3", "1023"."""
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"


def share_text(share: float) -> str:
    """0.123 -> "12 %"."""
    return f"{100 * share:.0f} %"


def cost_sentence(costs: Mapping[str, Any]) -> str:
    """The report's `costs` in a line: how ops were priced, and how much of a step that explains."""
    sentence = f"{costs['source']}, {share_text(costs['covered_ops'])} of the ops priced"
    if costs.get("wall_time_coverage") is None:
        return sentence
    counts = ", ".join(
        f"{costs[key]:,} {words}"
        for key, words in (
            ("traced_ops", "traced"),
            ("fused_ops", "folded or fused"),
            ("scaled_ops", "scaled"),
            ("analytic_ops", "analytic"),
        )
        if costs[key]
    )
    covered = share_text(costs["wall_time_coverage"])
    return f"{sentence} ({counts}); traced ops are {covered} of a step's wall time"
