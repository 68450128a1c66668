"""Runs every kind of command on devices that are here, and holds predictions against real runs.

    python -m tests.tables.gpu_check [--cluster=gpu_split:2] [--tiny] [--only=TEXT]

Needs no network. Each command has a time limit, and its output is kept in FOLDER/NAME.log. At the
end there are FOLDER/summary.json, and a table on stdout: what ended how, and how many times as long
as predicted the measured step of each placement took.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = 240.0
"""The longest that one command may take."""
MODELS: Mapping[str, Sequence[str]] = {
    "rnnlm": ("--hidden_size=512", "--num_steps=10", "--vocab_size=2000"),
    "cifar10": (),
    "transformer": ("--num_layers=4", "--batch_size=8"),
    "inception_v3": ("--batch_size=8",),
}
OPTIMIZED: Mapping[str, Sequence[str]] = {
    "rnnlm": (),
    "cifar10": ("--shards=2",),
    "transformer": ("--order=edges",),
    "inception_v3": ("--memory_reserve=0.9",),
    "rnnlm ": ("--algorithm=spotlight",),
    "cifar10 ": ("--order=none", "--free_gradients"),
}
"""Flags by model; a space tells two runs of one model apart."""
Row = dict[str, Any]


class Check:
    """Runs commands, keeps their logs, and remembers how each ended."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder = Path(arguments.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._only = arguments.only
        self.rows: list[Row] = []

    def run(self, name: str, *words: str) -> str:
        """The stdout of `tfplace words`; empty where it was not wanted or did not end well."""
        if self._only not in name:
            return ""
        log = self.folder / f"{name.replace(' ', '_')}.log"
        began = time.monotonic()
        command = [sys.executable, "-m", "tfplace", *words]
        with log.open("w", encoding="utf-8") as stderr:
            try:
                done = subprocess.run(command, stdout=-1, stderr=stderr, timeout=SECONDS)
                status, output = done.returncode, done.stdout.decode()
            except subprocess.TimeoutExpired as late:
                status, output = None, (late.stdout or b"").decode()
        with log.open("a", encoding="utf-8") as file:
            file.write(output)
        row = {"name": name, "status": status, "seconds": time.monotonic() - began}
        self.rows.append(row)
        print(f"{name}: status {status}, {row['seconds']:.1f} s", flush=True)
        return output if status == 0 else ""


def main(argv: Sequence[str]) -> None:
    """Runs all of it, or what has `--only` in its name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="gpu_check")
    parser.add_argument("--cluster", default="gpu_split:2")
    parser.add_argument("--budget", default=20, type=int)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args(argv)
    check, cluster = Check(arguments), f"--cluster={arguments.cluster}"
    budget = f"--budget_seconds={arguments.budget}"
    check.run("devices", "devices", cluster)
    check.run("calibrate", "calibrate", cluster, budget, _to(check, "cluster.json"), "--overwrite")
    for name, flags in MODELS.items():
        sizes = ("--size=tiny",) if arguments.tiny else flags
        output = _to(check, f"{name}.pb")
        check.run(f"graph {name}", "graph", name, *sizes, output, "--overwrite")
        model = str(check.folder / f"{name}.pb")
        check.run(f"check {name}", "check", model, cluster, "--run")
        check.run(f"measure {name}", "measure", model, cluster, budget)
        few = ("--placements=8", "--rounds=3", "--trace=0", f"{output[:-3]}.json", "--overwrite")
        check.run(f"fidelity {name}", "fidelity", model, cluster, *few)
        _note_fidelity(check, name)
    for name, flags in OPTIMIZED.items():
        model = str(check.folder / f"{name.strip()}.pb")
        written = f"--output_dir={check.folder / 'placed'}"
        words = (model, cluster, budget, written, "--overwrite", "--format=json", *flags)
        report = check.run(f"optimize {name}{' '.join(flags)}", "optimize", *words)
        if report:
            check.rows[-1] |= _facts(json.loads(report))
    text = json.dumps(check.rows, indent=1)
    (check.folder / "summary.json").write_text(text, encoding="utf-8")
    for row in check.rows:
        print({key: value for key, value in row.items() if value is not None})


def _to(check: Check, name: str) -> str:
    return f"--output={check.folder / name}"


def _note_fidelity(check: Check, name: str) -> None:
    path = check.folder / f"{name}.json"
    if path.exists():
        made = json.loads(path.read_text(encoding="utf-8"))
        check.rows[-1] |= {k: v for k, v in made.items() if isinstance(v, float | int | str)}


def _facts(report: Row) -> Row:
    measured = report["measured"] or {}
    tried = measured.get("tried") or []
    return {
        "verdict": report["verdict_sentence"],
        "milliseconds": {
            name: round(1e3 * of["median_seconds"], 3)
            for name in ("given", "single", "placed")
            if isinstance(of := measured.get(name), dict) and "median_seconds" in of
        },
        "measured_to_predicted": [
            round(each["measured_seconds"] / each["predicted_seconds"], 3)
            for each in tried
            if each.get("measured_seconds")
        ],
        "verified": (report["verified"] or {}).get("status"),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
