"""What `tfplace fidelity` found, as JSON and for a person."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from tfplace.fidelity.error_sources import Amount, TracedStep
from tfplace.fidelity.study import Fidelity, Pair
from tfplace.report.report import plain
from tfplace.units_text import seconds_text, share_text

MAX_OP_TYPES = 8
MUCH_BACKGROUND = 0.05


def fidelity_to_json(found: Fidelity) -> dict[str, Any]:
    """The result object."""
    return {
        "model": found.model,
        "cluster": found.cluster,
        "communication": found.communication,
        "is_calibrated": found.is_calibrated,
        "num_placements": len(found.pairs),
        **plain(found.agreement),
        "speedup": plain(found.speedup),
        "kept_speedup": plain(found.kept_speedup),
        "pairs": [{**plain(pair), "relative_error": _error(pair)} for pair in found.pairs],
        "failed": dict(found.failed),
        "traced": [
            {key: value for key, value in plain(step).items() if key != "op_seconds"}
            for step in found.traced
        ],
        "by_op_type": plain(found.by_op_type),
        "background_share": found.background_share,
    }


def print_fidelity(found: Fidelity, out: Console) -> None:
    """Prints pairs, where errors come from, and last how well it all agrees."""
    out.print(f"model     {found.model}", soft_wrap=True)
    known = "calibrated" if found.is_calibrated else "not calibrated: run `tfplace calibrate`"
    out.print(f"cluster   {found.cluster} ({found.communication} channels; {known})")
    out.print(_pairs(found))
    for name, why in found.failed.items():
        out.print(f"failed    {name}: {why}")
    if found.traced:
        out.print(_sources(found))
        out.print(_op_types(found))
    if (share := found.background_share) is not None and share > MUCH_BACKGROUND:
        out.print(f"noise     others used {share_text(share)} of this machine meanwhile")
    figures = found.agreement
    rank = "-" if figures.spearman is None else f"{figures.spearman:.3f}"
    for label, best, words in (
        ("speed-up", found.speedup, "best prediction over best device"),
        ("kept", found.kept_speedup, "fastest optimised one, as optimize keeps it"),
    ):
        if best is not None:
            figures_text = f"{best.predicted:.3f}x predicted, {best.measured:.3f}x measured"
            out.print(f"{label:9} {figures_text}: {words}")
    out.print(
        f"agreement {len(found.pairs)} placements: Spearman {rank}, |error| median "
        f"{figures.median_abs_relative_error:.1%}, p90 {figures.p90_abs_relative_error:.1%}"
    )


def _error(pair: Pair) -> float:
    return pair.predicted_seconds / pair.measured_seconds - 1.0


def _pairs(found: Fidelity) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("placement", max_width=34, no_wrap=True)
    for name in ("predicted", "measured", "error", "p10-p90", "moves"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in sorted(found.pairs, key=lambda pair: pair.measured_seconds):
        spread = (pair.p90 - pair.p10) / pair.measured_seconds
        table.add_row(
            pair.name,
            seconds_text(pair.predicted_seconds),
            seconds_text(pair.measured_seconds),
            f"{_error(pair):+.1%}",
            f"{spread:.1%}",
            f"{pair.transfers:,}",
        )
    return table


def _sources(found: Fidelity) -> Table:
    """Predicted > traced of the placements that were taken apart."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("taken apart", max_width=24, no_wrap=True)
    for name in ("ops", "between ops", "moving"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in found.traced:
        table.add_row(step.name, *(_amount(a) for a in _amounts(step)))
    return table


def _amounts(step: TracedStep) -> tuple[Amount, Amount, Amount]:
    return step.compute, step.dispatch, step.transfer


def _amount(amount: Amount) -> str:
    return f"{seconds_text(amount.predicted_seconds)} / {seconds_text(amount.traced_seconds)}"


def _op_types(found: Fidelity) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("op type", max_width=34, no_wrap=True)
    for name in ("ops", "predicted", "traced", "error"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.by_op_type[:MAX_OP_TYPES]:
        error = row.predicted_seconds - row.traced_seconds
        table.add_row(
            row.op_type,
            f"{row.num_ops:,}",
            seconds_text(row.predicted_seconds),
            seconds_text(row.traced_seconds),
            ("-" if error < 0 else "+") + seconds_text(abs(error)),
        )
    return table
