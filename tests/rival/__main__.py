"""Compares with `tf.distribute`, by hand: `python -m tests.rival [--page | NAME ...]`.

Each model is trained by one process on one core, by what `tfplace optimize` makes of it on two
workers of one core each, by MultiWorkerMirroredStrategy (ring) in two processes of one core each,
and by MirroredStrategy on two logical devices of one process. All of them have the same weights,
batch and optimizer, and take turns. Wants two idle cores and about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.rival.compare import RivalOptions, compare
from tests.rival.models import COMPARED, MODELS
from tests.rival.result import Compared
from tests.rival.table import result_file, text
from tests.rival.ways import WAYS
from tests.tables.rewrite_docs import DOCS, ROOT, origin_of, write_result

_PAGE = DOCS / "benchmarks" / "rival.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares, prints and writes what was asked for; what failed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.rival", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of them, the first included")
    parser.add_argument(
        "--optimize",
        default="--shards=auto --budget_seconds=40",
        help="flags of `tfplace optimize`",
    )
    parser.add_argument("--folder", help="keep what tfplace made there; what is there is used")
    parser.add_argument("--warmup_steps", type=int, default=RivalOptions.warmup_steps)
    parser.add_argument("--seconds", type=float, default=RivalOptions.seconds, help="of turns")
    parser.add_argument("--json", help="write all figures there")
    parser.add_argument("--page", action="store_true", help=f"rewrite {_PAGE.name}")
    asked = parser.parse_args(arguments)
    unknown = sorted({*asked.names} - {*MODELS})
    if unknown:
        parser.error(f"found {', '.join(unknown)}; wanted some of {', '.join(MODELS)}")
    if asked.page and asked.names:
        parser.error("--page with NAME: the page's rows are of one run; leave out one of the two")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked.folder or scratch).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        options = RivalOptions(
            folder,
            shlex.split(asked.optimize),
            asked.warmup_steps,
            asked.seconds,
            asked.ways.split(","),
        )
        compared = []
        for name in asked.names or COMPARED:
            compared.append(compare(name, options, lambda what: print(f"... {what}", flush=True)))
            print(text(compared[-1]), flush=True)
    if asked.json:
        every = [each.as_json() for each in compared]
        Path(asked.json).write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    if asked.page:
        write_page(compared, f"--optimize='{asked.optimize}'")


def write_page(compared: Sequence[Compared], flags: str) -> None:
    """Writes the result file and the page's table."""
    origin = {"command": f"python -m tests.rival {flags}", **origin_of(ROOT)}
    write_result(_PAGE, result_file(compared, origin))


if __name__ == "__main__":
    main()
