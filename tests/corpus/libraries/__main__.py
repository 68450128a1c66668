"""Runs the libraries' models by hand: `python -m tests.corpus.libraries --help`.

Each is saved in a process of its library's venv and given to `tfplace optimize` in another one.
A line of JSON for each that could be saved is added to --results; models that have one there are
not run again.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.corpus.libraries.all_models import LIBRARIES
from tests.corpus.libraries.venvs import KERAS_3, ROOT, python_of

REPOSITORY = Path(__file__).parents[3]
FLAGS = "--cluster=workers:2 --budget_seconds=60"
LIMIT_SECONDS = 900


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="models or libraries (default: all)")
    parser.add_argument("--results", default=str(ROOT / "results.jsonl"))
    parser.add_argument("--flags", default=FLAGS, help=f"of optimize (default: {FLAGS})")
    parser.add_argument("--only_save", action="store_true", help="save them; optimize none")
    parser.add_argument(
        "--table", action="store_true", help="print the results for a table of the docs"
    )
    parser.add_argument("--save_in", help="internal: the folder to save the model in, here")
    arguments = parser.parse_args()
    if arguments.save_in:
        LIBRARIES[arguments.names[0]].build(arguments.save_in)
        return
    results = Path(arguments.results)
    done = {row["name"]: row for row in _rows(results)}
    chosen = [
        name
        for name, each in LIBRARIES.items()
        if not arguments.names or {name, each.library} & set(arguments.names)
    ]
    if arguments.table:
        print(json.dumps(table([done[name] for name in chosen if name in done]), indent=1))
        return
    for name in chosen:
        if name in done and not arguments.only_save:
            continue
        row = check(name, arguments.flags, arguments.only_save)
        print(f"{name:28} {row['seconds']:5.0f} s  {row['outcome'][:300]}", flush=True)
        if not arguments.only_save and not row["outcome"].startswith("not saved"):
            results.parent.mkdir(parents=True, exist_ok=True)
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")


def check(name, flags=FLAGS, only_save=False):
    """Saves a model, if it isn't saved yet, optimizes it, and says what came of it."""
    began = time.monotonic()
    row = {"name": name, "library": LIBRARIES[name].library, "outcome": "saved", "status": 0}
    saved, said = _saved(name)
    if not saved.exists():
        row |= {"status": 1, "outcome": f"not saved: {said[-1500:]}"}
    elif not only_save:
        row |= _optimized(saved, flags.split())
    return row | {"seconds": time.monotonic() - began}


def _saved(name):
    """Where the saved model is, or would be, and what was said where it is not."""
    folder = ROOT / "saved_models" / name
    path = folder / "model"
    if (path / "saved_model.pb").exists():
        return path, ""
    library = LIBRARIES[name].library
    folder.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(REPOSITORY),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_USE_LEGACY_KERAS": str(int(library not in KERAS_3)),
    }
    command = [python_of(library), "-m", "tests.corpus.libraries", name, f"--save_in={folder}"]
    return path, _said(command, env)[1]


def _optimized(path, flags):
    with tempfile.TemporaryDirectory(prefix="libraries_") as folder:
        out = Path(folder) / "placed"
        command = [sys.executable, "-m", "tfplace", "optimize", str(path), *flags]
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        began = time.monotonic()
        status, said = _said([*command, f"--output_dir={out}", "--verbosity=-1"], env)
        took = {"optimize_seconds": time.monotonic() - began, "status": status}
        if status:
            errors = re.findall(r"tfplace: error: .*", said)
            return took | {"outcome": f"status {status}: {errors[-1] if errors else said[-1500:]}"}
        report = json.loads((out / "assets.extra/tfplace/report.json").read_text())
    return took | facts_of(report) | {"split": _split_share(path)}


def facts_of(report):
    """What the table says of a report."""
    verified = report["verified"]
    measured = report["measured"]
    return {
        "outcome": report["verdict"],
        "why": report.get("why", ""),
        "num_ops": report["model"]["num_ops"],
        "shards": (report["split"] or {}).get("shards", 1),
        "measured_seconds": _median(measured, "placed"),
        "single_seconds": _median(measured, "single"),
        "compared": verified["run"],
        "equal": verified["outputs_equal"],
        "unproven": (verified.get("split") or {}).get("unproven", ""),
    }


def _median(measured, name):
    """None where nothing was measured; a text says why a run was not."""
    run = measured and measured[name]
    return run["median_seconds"] if isinstance(run, dict) else None


def _split_share(path):
    """Shares of the seconds of forward and backward ops, in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tests.corpus.libraries.split_share", str(path)]
    status, said = _said(command, env)
    lines = [line for line in said.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines and not status else {"why_not": said[-500:]}


def _said(command, env):
    """A child's status and what it said, 124 where it ran past the limit."""
    try:
        done = subprocess.run(
            command, env=env, timeout=LIMIT_SECONDS, text=True, cwd=tempfile.gettempdir(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"not done after {LIMIT_SECONDS} s"
    return done.returncode, done.stdout


def _rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


COLUMNS = [
    {"name": "library"}, {"name": "model"}, {"name": "ops", "format": ",d"},
    {"name": "kept or placed"}, {"name": "seconds", "format": ".0f"},
    {"name": "split", "format": ".0%"}, {"name": "placed ms", "format": ".1f"},
    {"name": "one worker ms", "format": ".1f"}, {"name": "compared"}, {"name": "whole, from 1 %"},
]  # fmt: skip


def table(rows):
    """The result file of a table (tests/tables), a row for each model."""
    kept = {"kept_single": "one worker", "kept_given": "as given"}
    lines = []
    for row in rows:
        split = row.get("split") or {}
        whole = [each for each in split.get("whole", []) if not each.endswith("(0%)")]
        times = [row.get(key) and 1e3 * row[key] for key in ("measured_seconds", "single_seconds")]
        outcome = f"status {row['status']}" if row["status"] else row["outcome"]
        lines.append(
            [
                row["library"], row["name"], row.get("num_ops"), kept.get(outcome, outcome),
                row.get("optimize_seconds"), split.get("split"), *times,
                str(row.get("compared", ""))[:80],
                "; ".join(whole) or split.get("why_not", "")[:80],
            ]
        )  # fmt: skip
    return {"columns": COLUMNS, "rows": lines}


if __name__ == "__main__":
    main()
