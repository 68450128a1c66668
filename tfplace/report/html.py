"""report.html: the report for a person, one file, no network, light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from tfplace.report.report import Measured, Report, Timing
from tfplace.report.units_text import bytes_text, cost_sentence, seconds_text, share_text

STYLE = """
:root { color-scheme: light dark; --line: #8886; --bar: #4a7fb5; --best: #2e8b57; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { border-left: 4px solid var(--best); padding: .5rem 1rem; background: #8881; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: right; padding: .2rem .6rem;
  border-bottom: 1px solid var(--line); } th:first-child, td:first-child { text-align: left; }
.bar { background: var(--bar); height: .8rem; } .best .bar { background: var(--best); }
.track { background: #8882; min-width: 12rem; } code { overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } polyline { fill: none; stroke: var(--best); stroke-width: 2; }
svg text { fill: currentColor; font-size: 11px; } svg line { stroke: var(--line); }
"""


def html_report(report: Report) -> str:
    """The whole page."""
    model = report.model
    title = f"{model['path']} on {report.cluster['name']}"
    sections = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="verdict"><b>{_text(report.verdict)}</b>: {_text(report.verdict_sentence)}</p>',
        "<h2>Step time, predicted</h2>",
        _step_bars(report),
        f"<p>{_text(report.bound_sentence)}</p>",
        *(f"<p>Advice: {_text(sentence)}.</p>" for sentence in report.advice["sentences"]),
        _measured(report.measured),
        "<h2>Devices</h2>",
        _devices(report),
        f"<p>{report.best.transfers:,} transfers of {bytes_text(report.best.transfer_bytes)} a "
        f"step; channels: {_text(report.cluster['communication'])}.</p>",
        "<h2>Search</h2>",
        _curve(report.search["history"]),
        _facts(report),
    ]
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{_text(title)}</title><style>{STYLE}</style><body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _step_bars(report: Report) -> str:
    rows = [
        (name, baseline.step_seconds if baseline.feasible else None, baseline.reason)
        for name, baseline in report.baselines.items()
    ]
    rows.append(("written", report.best.step_seconds, ""))
    if report.lower_bound_seconds:
        rows.append(("lower bound", report.lower_bound_seconds, ""))
    longest = max((s for _, s, _ in rows if s), default=1.0)
    lines = []
    for name, seconds, reason in rows:
        share = 0.0 if not seconds else 100 * seconds / longest
        kind = " class='best'" if name == "written" else ""
        value = seconds_text(seconds) if seconds else f"can't run: {_text(reason)}"
        lines.append(
            f"<tr{kind}><td>{_text(name)}</td><td>{value}</td><td><div class='track'>"
            f"<div class='bar' style='width:{share:.1f}%'></div></div></td></tr>"
        )
    return f"<table>{''.join(lines)}</table>"


def _measured(measured: Measured | None) -> str:
    if measured is None:
        return "<p>Not measured: the cluster's devices are not present, or there is only one.</p>"
    rows = [(name, *_timing_cells(timing)) for name, timing in measured.timings.items()]
    low, high = measured.speedup_ci95
    sentence = (
        f"<p>{measured.speedup:.2f}x as fast as {_text(measured.baseline)}; 95 % interval "
        f"{low:.2f} to {high:.2f}; runs through {_text(measured.through)}. Verdict: placed against "
        f"{_text(measured.baseline)}: {_text(measured.verdict)}.</p>"
        if measured.baseline
        else ""
    )
    return "<h2>Step time, measured</h2>" + _table(
        ("placement", "median", "p10", "p90", "runs"), rows
    ) + sentence  # fmt: skip


def _timing_cells(timing: Timing | str) -> tuple[str, str, str, str]:
    if isinstance(timing, str):
        return timing, "", "", ""
    return (
        seconds_text(timing.median_seconds),
        seconds_text(timing.p10),
        seconds_text(timing.p90),
        str(timing.runs),
    )


def _devices(report: Report) -> str:
    memory: Mapping[str, int] = {d["name"]: d["memory_bytes"] for d in report.cluster["devices"]}
    best = report.best
    rows = [
        (
            name,
            f"{ops:,}",
            share_text(best.busy_share.get(name, 0.0)),
            bytes_text(best.peak_bytes.get(name, 0)),
            bytes_text(memory[name]),
        )
        for name, ops in best.ops_per_device.items()
    ]
    return _table(("device", "ops", "busy", "peak", "memory"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _curve(history: Sequence[Sequence[float]]) -> str:
    """Best step time so far against trials."""
    points = [(trial, best) for trial, _, best in history if best and math.isfinite(best)]
    if len(points) < 2:
        return "<p>No search was needed.</p>"
    last, low = points[-1][0] or 1, min(best for _, best in points)
    high = max(best for _, best in points)
    span = (high - low) or 1.0
    steps = []
    previous = points[0][1]
    for trial, best in points:
        x = 60 + 720 * trial / last
        steps += [f"{x:.1f},{180 - 160 * (previous - low) / span:.1f}"]
        steps += [f"{x:.1f},{180 - 160 * (best - low) / span:.1f}"]
        previous = best
    return (
        "<svg viewBox='0 0 800 210' role='img' aria-label='best step time against trials'>"
        "<line x1='60' y1='180' x2='780' y2='180'/><line x1='60' y1='20' x2='60' y2='180'/>"
        f"<text x='2' y='24'>{seconds_text(high)}</text>"
        f"<text x='2' y='184'>{seconds_text(low)}</text>"
        f"<text x='700' y='200'>{last:,} trials</text>"
        f"<polyline points='{' '.join(steps)}'/></svg>"
    )


def _facts(report: Report) -> str:
    costs, search, verified = report.costs, report.search, report.verified
    rows = [
        ("algorithm", f"{report.algorithm}, seed {report.seed}, evaluator {report.evaluator}"),
        ("trials", f"{search['num_trials']:,}, {search['num_infeasible']:,} infeasible"),
        ("run", report.model["step_origin"]),
        ("guessed", "; ".join(report.model["guessed"]) or "nothing"),
        ("costs", cost_sentence(costs)),
        ("verified", f"{len(verified.compared)} values, largest difference "
                     f"{verified.max_abs_diff:.3g}"),
        ("command", report.command),
    ]  # fmt: skip
    cells = "".join(
        f"<tr><td>{_text(name)}</td><td style='text-align:left'><code>{_text(value)}</code></td>"
        "</tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"
