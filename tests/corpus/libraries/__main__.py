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
    parser.add_argument("--table", action="store_true", help="print the results as a table")
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
        print("\n".join(table([done[name] for name in chosen if name in done])))
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


def table(rows):
    """Lines of Markdown, a row for each model."""
    yield "| library | model | ops | verdict | split | measured ms (single) | compared | why not |"
    yield "| --- | --- | ---: | --- | ---: | ---: | --- | --- |"
    for row in rows:
        split = row.get("split") or {}
        share = f"{split['split']:.0%}" if "split" in split else ""
        placed, single = row.get("measured_seconds"), row.get("single_seconds")
        times = f"{1e3 * placed:.1f} ({1e3 * single:.1f})" if placed and single else ""
        verdict, why = row["outcome"], "; ".join(split.get("whole", [])) or split.get("why_not", "")
        if row["status"]:
            verdict, why = f"status {row['status']}", row["outcome"]
        why = " ".join(why.split())[:200].replace("|", "/")
        compared = row.get("compared", "")
        yield (
            f"| {row['library']} | {row['name']} | {row.get('num_ops', '')} | {verdict} | {share} "
            f"| {times} | {compared} | {why} |"
        )


if __name__ == "__main__":
    main()
