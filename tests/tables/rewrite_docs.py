"""Rewrites what the documents quote from kept results: `python -m tests.tables.rewrite_docs`.

Results are the JSON files in `benchmarks/results/`, each with the command, commit and machine that
made it. A page shows one between two comments, and nothing there is written by hand:

    <!-- table: one_shot -->
    <!-- end -->

`transcript: demo` in place of `table: ...` shows all lines of a recorded terminal session, and
`key lines: demo` only those that begin as KEY_LINES say.

The command first runs the demo of the README (about two minutes, two idle cores) and keeps what it
prints; `--transcript=FILE` takes that from a file, and `--nodemo` keeps the one that there is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.clusters.this_host import processor

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "tfplace" / "docs"

DEMO = (
    "tfplace graph rnnlm --hidden_size=512 --num_steps=10 --vocab_size=2000 "
    "--output=demo/rnnlm.pb --overwrite",
    "tfplace optimize demo/rnnlm.pb --cluster=workers:2 --budget_seconds=60 "
    "--output_dir=demo/rnnlm_placed --overwrite",
)
"""What `make demo` runs, too."""
KEY_LINES = ("measured  given", "measured  placed", "speed-up", "verified", "verdict")
"""How the lines of `optimize` begin that a reader in a hurry wants."""

_BLOCK = re.compile(
    r"^<!-- (?P<kind>table|transcript|key lines): (?P<name>\w+) -->\n"
    r"(?P<old>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)


def pages(root: Path) -> list[Path]:
    """README.md and every page of the documents in a checkout."""
    return [root / "README.md", *sorted((root / "tfplace" / "docs").rglob("*.md"))]


def rewritten(text: str, results: Path) -> str:
    """A page with what stands between its comments made anew.

    Args:
      text: of the page.
      results: the folder of the result files.

    Raises:
      FileNotFoundError: the page asks for a result that is not kept.
      ValueError: the page has a comment of this kind that no `<!-- end -->` follows.
    """
    opened = len(re.findall(r"^<!-- (?:table|transcript|key lines):", text, re.MULTILINE))
    if opened != len(_BLOCK.findall(text)):
        raise ValueError(
            f"rewriting a page: it opens {opened} blocks but ends {len(_BLOCK.findall(text))} of "
            "them; wanted `<!-- end -->` on a line of its own after each"
        )

    def made_anew(match: re.Match[str]) -> str:
        result = json.loads((results / f"{match['name']}.json").read_text(encoding="utf-8"))
        show = {"table": table, "transcript": transcript, "key lines": key_lines}[match["kind"]]
        return f"<!-- {match['kind']}: {match['name']} -->\n{show(result)}<!-- end -->"

    return _BLOCK.sub(made_anew, text)


def write_result(page: Path, result: Mapping[str, Any]) -> None:
    """Keeps the result that a page of the benchmarks is named after, and rewrites the page."""
    results = page.parent / "results"
    made = json.dumps(result, ensure_ascii=False, indent=2)
    (results / f"{page.stem}.json").write_text(f"{made}\n", encoding="utf-8")
    page.write_text(rewritten(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def table(result: Mapping[str, Any]) -> str:
    """A Markdown table of a result's rows, and a line that says where they come from.

    The least number of each row is bold among the columns that `bold` names.
    """
    columns = result["columns"]
    lines = [
        [column["name"] for column in columns],
        ["---:" if {"format", "align"} & column.keys() else "---" for column in columns],
        *([_cell(column, value) for column, value in zip(columns, row, strict=True)]
          for row in result["rows"]),
    ]  # fmt: skip
    compared = [n for n, column in enumerate(columns) if column["name"] in result.get("bold", ())]
    for row, cells in zip(result["rows"], lines[2:], strict=True):
        least = min((row[n] for n in compared if row[n] is not None), default=None)
        for n in compared:
            if row[n] is not None and row[n] == least:
                cells[n] = f"**{cells[n]}**"
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"\n{text}\n*{_origin(result)}*\n\n"


def _cell(column: Mapping[str, str], value: str | float | None) -> str:
    if value is None:
        return ""
    return format(value, column["format"]) if "format" in column else str(value)


def _origin(result: Mapping[str, Any]) -> str:
    """What was run, on what, with which code."""
    command = result["command"]
    ran = f"`{command}`" if command.startswith(("tfplace ", "python ")) else command
    sentences = [
        *([result["note"]] if "note" in result else []),
        f"{ran}; {result['machine']}; commit {result['commit']}",
        *(["transcribed: the raw results are not kept"] if result["transcribed"] else []),
    ]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def transcript(result: Mapping[str, Any]) -> str:
    """All lines of a recorded session, as a block, and where it was recorded."""
    lines = "".join(f"{line}\n" for line in result["lines"])
    return f"\n```\n{lines}```\n\n*{result['machine']}; commit {result['commit']}.*\n\n"


def key_lines(result: Mapping[str, Any]) -> str:
    """The lines of a session that begin as KEY_LINES say, with those that continue them."""
    kept: list[str] = []
    wanted = False
    for line in result["lines"]:
        wanted = line.startswith(KEY_LINES) or (wanted and line.startswith(" "))
        kept += [line] * wanted
    lines = "".join(f"{line}\n" for line in kept)
    return f"\n```\n{lines}```\n\n*{result['machine']}; commit {result['commit']}.*\n\n"


def run_demo(root: Path) -> list[str]:
    """Lines of the demo as a terminal of 80 columns shows them, the commands among them."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    (root / "demo").mkdir(exist_ok=True)
    lines = []
    for command in DEMO:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        lines += [f"$ {command}", *done.stdout.splitlines()]
    return lines


def session(lines: Sequence[str], root: Path) -> dict[str, Any]:
    """The result file of a demo that ran on this machine with the code in `root`."""
    return {"command": "make demo", **origin_of(root), "lines": list(lines)}


def origin_of(root: Path) -> dict[str, Any]:
    """What a result file says of the machine and the code that made it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True
    ).stdout.strip()
    cores = len(os.sched_getaffinity(0))
    return {
        "machine": f"{cores} cores of {processor() or 'an unknown processor'}",
        "commit": commit,
        "transcribed": False,
    }


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Runs the demo unless told otherwise, and rewrites all pages of a checkout."""
    parser = argparse.ArgumentParser(prog="python -m tests.tables.rewrite_docs")
    parser.add_argument("--transcript", help="a file with what the demo has printed")
    parser.add_argument("--nodemo", action="store_true", help="keep the transcript that there is")
    options = parser.parse_args(arguments)
    results = root / "tfplace" / "docs" / "benchmarks" / "results"
    if options.transcript or not options.nodemo:
        lines = (
            Path(options.transcript).read_text(encoding="utf-8").splitlines()
            if options.transcript
            else run_demo(root)
        )
        text = json.dumps(session(lines, root), ensure_ascii=False, indent=2)
        (results / "demo.json").write_text(f"{text}\n", encoding="utf-8")
    for page in pages(root):
        old = page.read_text(encoding="utf-8")
        new = rewritten(old, results)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"rewrote {page.relative_to(root)}")


if __name__ == "__main__":
    main()
