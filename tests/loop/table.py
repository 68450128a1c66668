"""Rows as text of 80 columns, and as the result file that a page is made of."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tests.loop.other import OTHER
from tests.loop.result import WRITTEN, Judged
from tests.loop.rows import ROWS
from tests.rival.table import milliseconds, times

RIVALS = ("single", "data parallel", "minimum cut", "m-ETF", OTHER)


def text(judged: Judged) -> str:
    """What one row says, for a person."""
    lines = [f"{judged.row}, noise {judged.noise:.0%}: {ROWS[judged.row].says}"]
    lines.append(f"  {'':16}{'step':>8}{'10 to 90 %':>16}{'written over it':>20}")
    for way in judged.runs:
        timing = judged.timing(way)
        assert timing is not None
        spread = f"{milliseconds(timing.p10)} to {milliseconds(timing.p90)}"
        over = times(judged.over(way)) if way != WRITTEN else ""
        lines.append(f"  {way:16}{milliseconds(timing.median_seconds):>8}{spread:>16}{over:>20}")
    said = [f"{way} did not run: {why}" for way, why in judged.failed.items()]
    said += [f"{way} is faster, beyond noise" for way in judged.slower_than]
    said += [f"{judged.report['verdict']}: {judged.report['verdict_sentence']}"]
    said += [f"predicted {_error(judged)} of the measured step; {_ranks(judged)}"]
    said += [f"{name}: {_seconds(each)}" for name, each in _times(judged) if each]
    for sentence in said:
        lines += textwrap.wrap(sentence, 78, initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, ""])


def _times(judged: Judged) -> list[tuple[str, Mapping[str, float]]]:
    phases = judged.report.get("seconds_by_phase", {})
    return [("optimize took", phases), ("judging took", judged.seconds)]


def _seconds(stages: Mapping[str, float]) -> str:
    parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in stages.items())
    return f"{sum(stages.values()):.0f} s ({parts})"


def result_file(rows: Sequence[Judged], origin: dict[str, Any]) -> dict[str, Any]:
    """What a page shows (`tests.tables.rewrite_docs`)."""
    columns = ("model", "noise", "verdict", "step", *RIVALS, "predicted", "Spearman, reliability")
    return {
        "note": "milliseconds of the written placement's step; how many times faster it is than "
        "the others, with 95 % intervals; its predicted step over the measured one, less one; "
        "ranks of other placements",
        **origin,
        "columns": [{"name": name, "align": "right"} for name in columns],
        "rows": [_row(each) for each in rows],
    }


def _row(judged: Judged) -> list[str]:
    timing = judged.timing(WRITTEN)
    split = judged.report["split"]
    shards = "" if split is None else f", {split['shards']} shards"
    return [
        judged.row,
        f"{judged.noise:.0%}",
        f"{judged.report['verdict']}{shards}",
        "did not run" if timing is None else milliseconds(timing.median_seconds),
        *(
            "did not run"
            if way in judged.failed
            else times(judged.over(way), " to ")
            if way in judged.runs
            else ""
            for way in RIVALS
        ),
        _error(judged),
        _ranks(judged),
    ]


def _error(judged: Judged) -> str:
    error = judged.prediction_error
    return "" if error is None else f"{error:+.0%}"


def _ranks(judged: Judged) -> str:
    spearman, most = judged.ranks.get("spearman"), judged.ranks.get("reliability")
    if spearman is None or most is None:
        return "not ranked"
    return f"{spearman:.2f}, {most:.2f}"
