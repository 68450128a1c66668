"""What `tfplace fidelity` came to, as JSON, for a person and as a picture."""

import io
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from rich.console import Console
from rich.table import Table

from graphs.counted import counted
from graphs.protos import Json
from tfplace.choosing.run_results import Round
from tfplace.fidelity.error_sources import Amount
from tfplace.fidelity.placements import KINDS
from tfplace.fidelity.study import Fidelity
from tfplace.report.report import plain
from tfplace.report.text import print_facts, table
from tfplace.report.text_calibration import FIGURES_TEXT
from tfplace.report.text_timings import taught
from tfplace.units_text import seconds_text, share_text

MAX_OP_TYPES = 8
MUCH_BACKGROUND = 0.05


def fidelity_to_json(fidelity: Fidelity) -> dict[str, Json]:
    """The result object."""
    fields = plain(fidelity)
    return {
        **fields.pop("agreement"),
        **fields,
        "num_placements": len(fidelity.pairs),
        "pairs": [
            {**plain(pair), "relative_error": plain(pair.relative_error)} for pair in fidelity.pairs
        ],
        "traced": [
            {key: value for key, value in step.items() if key != "op_seconds"}
            for step in fields["traced"]
        ],
    }


def print_fidelity(fidelity: Fidelity, out: Console) -> None:
    """Prints pairs, where errors come from, and last how well it all agrees."""
    cluster = f"{fidelity.cluster} ({fidelity.communication} channels)"
    machine = FIGURES_TEXT[fidelity.figures]
    if fidelity.corrected:
        machine += ", corrected by a first round of real runs"
    print_facts((("model", fidelity.model), ("cluster", cluster), ("machine", machine)), out)
    print_facts((("taught", sentence) for sentence in taught(Round((), fidelity.corrected))), out)
    out.print(_pairs(fidelity))
    print_facts((("failed", f"{name}: {why}") for name, why in fidelity.failed.items()), out)
    if fidelity.traced:
        # Predicted / traced of the placements that were taken apart.
        sources = table(("taken apart", "ops", "between ops", "moving"), gap=1, name_width=24)
        for step in fidelity.traced:
            sources.add_row(step.name, *map(_amount, (step.compute, step.dispatch, step.transfer)))
        out.print(sources)
        out.print(_op_types(fidelity))
    print_facts(_conclusion(fidelity), out)


def _conclusion(fidelity: Fidelity) -> Iterator[tuple[str, str]]:
    if (share := fidelity.background_share) is not None and share > MUCH_BACKGROUND:
        yield "noise", f"others used {share_text(share)} of this machine meanwhile"
    for label, best, words in (
        ("speed-up", fidelity.speedup, "best prediction over best device"),
        ("kept", fidelity.kept_speedup, "fastest optimised one, as optimize keeps it"),
    ):
        if best is not None:
            ratios = f"{best.predicted:.3f}x predicted, {best.measured:.3f}x measured"
            yield label, f"{ratios}: {words}"
    yield "agreement", f"{counted(len(fidelity.pairs), 'placement')}: {agreement_text(fidelity)}"


def agreement_text(fidelity: Fidelity) -> str:
    """ "Spearman 0.987, |error| median 3.2%, p90 8.1%"."""
    figures = fidelity.agreement
    rank = "-" if figures.spearman is None else f"{figures.spearman:.3f}"
    if figures.reliability is not None:
        rank += f" (reliability of the measured ranks {figures.reliability:.3f})"
    return (
        f"Spearman {rank}, |error| median {figures.median_abs_relative_error:.1%}, "
        f"p90 {figures.p90_abs_relative_error:.1%}"
    )


def _pairs(fidelity: Fidelity) -> Table:
    """The fastest first."""
    columns = ("placement", "predicted", "measured", "error", "p10-p90", "moves")
    pairs = table(columns, gap=1, name_width=34)
    for pair in sorted(fidelity.pairs, key=lambda pair: pair.measured_seconds):
        pairs.add_row(
            pair.name,
            seconds_text(pair.predicted_seconds),
            seconds_text(pair.measured_seconds),
            f"{pair.relative_error:+.1%}",
            f"{(pair.p90 - pair.p10) / pair.measured_seconds:.1%}",
            f"{pair.transfers:,}",
        )
    return pairs


def _amount(amount: Amount) -> str:
    return f"{seconds_text(amount.predicted_seconds)} / {seconds_text(amount.traced_seconds)}"


def _op_types(fidelity: Fidelity) -> Table:
    types = table(("op type", "ops", "predicted", "traced", "error"), gap=1, name_width=34)
    for row in fidelity.by_op_type[:MAX_OP_TYPES]:
        error = row.predicted_seconds - row.traced_seconds
        types.add_row(
            row.op_type,
            f"{row.num_ops:,}",
            seconds_text(row.predicted_seconds),
            seconds_text(row.traced_seconds),
            ("-" if error < 0 else "+") + seconds_text(abs(error)),
        )
    return types


# Predicted against measured step times as a scatter picture.

BAND = 0.1
"""Relative error within which a prediction is drawn as good."""
_MARGIN = 1.15  # of the axes' limits beyond the values
# Colours that colour-blind people tell apart (Okabe and Ito), and markers for those who see none.
_COLORS = {"single": "#444444", "optimised": "#0072b2", "structured": "#e69f00",
           "random": "#009e73"}  # fmt: skip
_MARKERS = {"single": "*", "optimised": "o", "structured": "s", "random": "^"}
_MAX_TICKS = 7
_TICKS_OF_A_DECADE = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1,),
)


def scatter_png(fidelity: Fidelity) -> bytes:
    """Log axes of equal scale, the identity, and the band of 10 % around it."""
    figure = Figure(figsize=(6.4, 6.4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    values = [s for pair in fidelity.pairs for s in (pair.predicted_seconds, pair.measured_seconds)]
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    line = np.geomspace(low, high, 50)
    axes.fill_between(line, line * (1 - BAND), line * (1 + BAND), color="#dddddd", lw=0,
                      label=f"±{BAND:.0%}")  # fmt: skip
    axes.plot(line, line, color="#999999", lw=1)
    for kind in KINDS:
        pairs = [pair for pair in fidelity.pairs if pair.kind == kind]
        if pairs:
            axes.scatter(
                [pair.measured_seconds for pair in pairs],
                [pair.predicted_seconds for pair in pairs],
                s=90 if kind == "single" else 34,
                color=_COLORS[kind],
                marker=_MARKERS[kind],
                edgecolors="white",
                linewidths=0.6,
                label=f"{kind} ({len(pairs)})",
                zorder=3,
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    ticks = _ticks(low, high)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks)
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    axes.set_xlabel("measured step")
    axes.set_ylabel("predicted step")
    title = f"{fidelity.model.rpartition('/')[2]} on {fidelity.cluster}"
    axes.set_title(f"{title}\n{agreement_text(fidelity)}", fontsize=10)
    axes.legend(loc="upper left", fontsize=9, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the limits, not too many."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for steps in _TICKS_OF_A_DECADE:
        ticks = [m * 10.0**d for d in decades for m in steps if low <= m * 10.0**d <= high]
        if len(ticks) <= _MAX_TICKS:
            return ticks
    return ticks
