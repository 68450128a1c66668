"""A comparison as text of 80 columns, and as the result file that a page is made of."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from tests.rival.result import Compared
from tests.rival.ways import MIRRORED, MULTI_WORKER, ONE, TFPLACE
from tfplace.measurement.timing import Speedup

_WIDTH = 80


def text(compared: Compared) -> str:
    """What one model's comparison says, for a person."""
    lines = [f"{compared.model}: {compared.says}"]
    lines.append(
        f"  {'':20}{'step':>8}{'10 to 90 %':>14}{'over one worker':>18}{'tfplace over it':>18}"
    )
    for way in compared.ran:
        timing = compared.timing(way)
        assert timing is not None
        over_one = times(compared.over(ONE, way)) if way != ONE else ""
        tfplace_over = times(compared.over(way, TFPLACE)) if way != TFPLACE else ""
        spread = f"{milliseconds(timing.p10)} to {milliseconds(timing.p90)}"
        lines.append(
            f"  {way:20}{milliseconds(timing.median_seconds):>8}"
            f"{spread:>14}{over_one:>18}{tfplace_over:>18}"
        )
    differing = [way for way in compared.ran if not compared.is_same(way)]
    most = max((compared.difference(way) for way in compared.ran), default=0.0)
    said = [f"{way} did not run: {why}" for way, why in compared.failed.items()]
    said += [f"{way} does not compute the same: no ratio" for way in differing]
    said += [f"losses of the first steps differ by {most:.0e} of the first one at most"]
    said += [f"tfplace: {compared.found}"] * bool(compared.found)
    said += [_background(compared)] * bool(_background(compared))
    for sentence in said:
        lines += textwrap.wrap(sentence, _WIDTH - 2, initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, ""])


def result_file(compared: Sequence[Compared], origin: dict[str, Any]) -> dict[str, Any]:
    """What a page shows of several comparisons (`tests.tables.rewrite_docs`)."""
    names = ("model", "one worker", TFPLACE, MULTI_WORKER, MIRRORED)
    over = f"{TFPLACE} over {MULTI_WORKER}"
    disturbed = [each.background_share for each in compared if each.background_share is not None]
    note = (
        "milliseconds of one worker's step; how many times faster the others are, with 95 % "
        "intervals"
    )
    if disturbed:
        note += f"; other programs took up to {max(disturbed):.0%} of the machine meanwhile"
    return {
        "note": note,
        **origin,
        "columns": [{"name": name, "align": "right"} for name in (*names, over)],
        "rows": [_row(each) for each in compared],
    }


def _row(compared: Compared) -> list[str]:
    one = compared.timing(ONE)
    return [
        compared.model,
        "" if one is None else milliseconds(one.median_seconds),
        *(_cell(compared, ONE, way) for way in (TFPLACE, MULTI_WORKER, MIRRORED)),
        _cell(compared, MULTI_WORKER, TFPLACE),
    ]


def _cell(compared: Compared, baseline: str, way: str) -> str:
    if way in compared.failed:
        return "did not run"
    return times(compared.over(baseline, way), " to ")


def times(speedup: Speedup | None, between: str = "-") -> str:
    """A ratio and its interval."""
    if speedup is None:
        return ""
    low, high = speedup.ci95
    return f"{speedup.ratio:.2f} ({low:.2f}{between}{high:.2f})"


def milliseconds(seconds: float) -> str:
    """A step time, without its unit."""
    return f"{1e3 * seconds:.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.1f}"


def _background(compared: Compared) -> str:
    share = compared.background_share
    if share is None or share < 0.02:
        return ""
    return f"other programs took {share:.0%} of this machine meanwhile: run it again when it rests"
