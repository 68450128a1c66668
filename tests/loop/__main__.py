"""Judges what `tfplace optimize` writes, by hand: `python -m tests.loop [--row=NAME] [--page]`.

Each model is placed on two workers of this machine in a minute; then the written placement is
measured afresh, by turns with one device, data parallelism, minimum cuts and m-ETF. A row takes
three to four minutes and wants two idle cores; `--noise=0.3` runs a program beside it that takes
30 % of one core at random. What lies in --folder and rows in --json are not made again.
`--other_checkout=DIR` measures beside what `tfplace optimize` of another checkout chooses.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphs.errors import TfplaceError
from tests.loop.judge import JudgeOptions, judge
from tests.loop.result import Judged, from_json
from tests.loop.rows import JUDGED, ROWS
from tests.loop.table import result_file, text
from tests.rival.contestant import RivalError
from tests.tables.rewrite_docs import DOCS, ROOT, origin_of, write_result

_PAGE = DOCS / "benchmarks" / "loop.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Judges, prints and writes what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.loop", description=__doc__)
    parser.add_argument("--row", action="append", choices=ROWS, help="may be given again")
    parser.add_argument("--noise", type=float, default=0.0, help="share of a core, below 1")
    parser.add_argument("--optimize", default="--budget_seconds=60", help="flags of `optimize`")
    parser.add_argument("--other_checkout", help="its own choice is measured beside")
    parser.add_argument("--folder", help="keep what tfplace made there; what is there is used")
    parser.add_argument("--seconds", type=float, default=JudgeOptions.seconds, help="of turns")
    parser.add_argument("--ranked", type=int, default=JudgeOptions.num_ranked)
    parser.add_argument("--json", help="keeps all figures; rows that are there are not made again")
    parser.add_argument("--page", action="store_true", help=f"rewrite {_PAGE.name} of all rows")
    asked = parser.parse_args(arguments)
    if not 0.0 <= asked.noise < 1.0:
        parser.error(f"found --noise={asked.noise:g}; wanted a share of a core, 0 <= x < 1")
    rows, failed = _kept(asked.json), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked.folder or scratch).absolute()
        flags = shlex.split(asked.optimize)
        other = Path(asked.other_checkout).absolute() if asked.other_checkout else None
        options = JudgeOptions(folder, flags, asked.seconds, asked.ranked, other)
        for name in asked.row or JUDGED:
            if any((each.row, each.noise) == (name, asked.noise) for each in rows):
                continue
            try:
                rows.append(judge(name, asked.noise, options, _say))
            except (RivalError, TfplaceError) as error:
                print(f"{name}, noise {asked.noise:.0%}: {error}", flush=True)
                failed.append(name)
                continue
            print(text(rows[-1]), flush=True)
            _keep(asked.json, rows)
    if asked.page:
        origin = {"command": f"python -m tests.loop --optimize='{asked.optimize}'"}
        write_result(_PAGE, result_file(rows, {**origin, **origin_of(ROOT)}))
    if failed:
        parser.exit(1, f"not judged: {', '.join(failed)}\n")


def _say(what: str) -> None:
    print(f"... {what}", flush=True)


def _kept(path: str | None) -> list[Judged]:
    if path is None or not Path(path).exists():
        return []
    return [from_json(each) for each in json.loads(Path(path).read_bytes())]


def _keep(path: str | None, rows: Sequence[Judged]) -> None:
    if path is not None:
        every = [each.as_json() for each in rows]
        Path(path).write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
