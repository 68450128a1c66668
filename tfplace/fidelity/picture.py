"""Predicted against measured step times as a scatter picture."""

import io

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from tfplace.fidelity.placements import KINDS
from tfplace.fidelity.result import agreement_text
from tfplace.fidelity.study import Fidelity
from tfplace.units_text import seconds_text

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
