"""Seconds, bytes and counts as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def seconds_text(seconds: float | None) -> str:
    """0.00123 -> "1.23 ms"; None or inf -> "-"."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.3g} µs"


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


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
