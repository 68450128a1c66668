"""How long each phase of `optimize` takes as graphs grow: `python -m tests.tables.phase_table`.

Writes `benchmarks/results/phases.json`; `rewrite_docs` puts it into the pages. It takes ten minutes
on two idle cores. `--sizes=1000,3000` runs only these, and keeps the other rows that there are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tables.rewrite_docs import DOCS, origin_of
from tfplace.output_paths import write_file
from tfplace.progress import PHASES

NUM_STEPS: Mapping[int, int] = {1_000: 9, 3_000: 28, 10_000: 95, 30_000: 285, 100_000: 945}
"""{ops, about: --num_steps of an RNNLM that has so many}."""
BUDGET_SECONDS = 20
_GRAPH = "rnnlm --hidden_size=512 --vocab_size=2000 --batch_size=32"
_OPTIMIZE = f"--cluster=k80x4 --evaluator=simulate --budget_seconds={BUDGET_SECONDS}"
COLUMNS = ("ops", *PHASES, "in all", "largest process", "beside")


def measured(num_steps: int) -> list[Any]:
    """A row: one graph is made and placed, in processes of their own.

    Its last cell says how many other processes wanted a core before.
    """
    with tempfile.TemporaryDirectory() as folder:
        model, out, load = f"{folder}/model.pb", f"{folder}/out", os.getloadavg()[0]
        _run(f"graph {_GRAPH} --num_steps={num_steps} --output={model}")
        began = time.monotonic()
        peak_bytes = _run(f"optimize {model} {_OPTIMIZE} --output_dir={out}")
        seconds = time.monotonic() - began
        report = json.loads(Path(out, "assets.extra/tfplace/report.json").read_bytes())
    phases = [round(report["seconds_by_phase"][phase], 1) for phase in PHASES]
    memory = f"{peak_bytes / 2**30:.1f} GiB"
    beside = f"{load:.1f} others" if load >= 0.5 else "nothing"
    return [report["model"]["num_ops"], *phases, round(seconds, 1), memory, beside]


def _run(words: str) -> int:
    """Runs a tfplace command; returns the most bytes that one process of it held."""
    command = [sys.executable, "-P", "-m", "tfplace", *words.split(), "--verbosity=-1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"timing phases: `tfplace {words}` ended with {status}; wanted 0")
    return usage.ru_maxrss * 1024


def result_of(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The result file, rows in the order of their sizes."""
    align = [{"name": name, "align": "right"} for name in COLUMNS]
    return {
        "command": "python -m tests.tables.phase_table",
        **origin_of(DOCS.parents[1]),
        "note": f"seconds; `tfplace graph {_GRAPH} --num_steps=N` with N = "
        f"{', '.join(map(str, NUM_STEPS.values()))}, then `tfplace optimize FILE {_OPTIMIZE}`",
        "columns": [{"name": "ops", "format": ",d"}, *align[1:]],
        "rows": sorted(rows, key=lambda row: row[0]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the result file after each row."""
    parser = argparse.ArgumentParser(prog="python -m tests.tables.phase_table")
    parser.add_argument("--sizes", default=",".join(map(str, NUM_STEPS)), help="some of them")
    sizes = [int(size) for size in parser.parse_args(arguments).sizes.split(",")]
    path = DOCS / "benchmarks" / "results" / "phases.json"
    rows = json.loads(path.read_bytes())["rows"] if path.exists() else []
    for size in sizes:
        new = measured(NUM_STEPS[size])
        rows = [row for row in rows if row[0] != new[0]] + [new]
        text = json.dumps(result_of(rows), indent=2)
        write_file(str(path), f"{text}\n".encode(), overwrite=True)


if __name__ == "__main__":
    main()
