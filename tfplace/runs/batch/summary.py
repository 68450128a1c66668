"""What came of each job, as JSON, CSV and Markdown: each file is whole at any moment."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfplace.output_paths import write_file
from tfplace.runs.batch.job import Job
from tfplace.runs.batch.job_state import JobState
from tfplace.runs.csv_text import csv_text
from tfplace.units_text import seconds_text
from tfplace.version import __version__

SCHEMA_VERSION = 1
SUMMARY_FILE = "summary.json"
FIGURES = (
    "verdict", "algorithm", "cluster", "step_seconds", "given_step_seconds",
    "single_step_seconds", "lower_bound_seconds", "num_trials", "measured_speedup",
)  # fmt: skip
COLUMNS = (
    "name", "state", "command", "model", "seconds", "attempts", *FIGURES, "exit_status", "error",
    "host", "output",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class JobRow:
    """A job in the table.

    Attributes:
      job, state: see there.
      result: what the job printed as JSON, None where it did not.
      was_done: by an earlier run of the batch.
    """

    job: Job
    state: JobState
    result: Any = None
    was_done: bool = False

    def to_json(self) -> dict[str, Any]:
        """A job of summary.json."""
        job, state = self.job, self.state
        return {
            "name": job.name,
            "line": job.line,
            "line_number": job.line_number,
            "command": job.command,
            "model": job.words[0] if job.words and not job.words[0].startswith("-") else None,
            "state": state.state,
            "was_done": self.was_done,
            "attempts": state.attempts,
            "seconds": state.seconds,
            "exit_status": state.exit_status,
            "error": state.error,
            "host": state.host,
            "ended": state.ended,
            "output": job.outputs[0] if job.outputs else None,
            **self.figures(),
        }

    def figures(self) -> dict[str, Any]:
        """What an optimisation found; of other commands there is nothing to compare."""
        found = self.result
        if self.job.command != "optimize" or not isinstance(found, Mapping):
            return dict.fromkeys(FIGURES)
        measured = found.get("measured") or {}
        baselines = found.get("baselines") or {}
        return {
            "verdict": found.get("verdict"),
            "algorithm": found.get("algorithm"),
            "cluster": _of(found.get("cluster"), "name"),
            "step_seconds": _of(found.get("best"), "step_seconds"),
            "given_step_seconds": _of(baselines.get("given"), "step_seconds"),
            "single_step_seconds": _of(baselines.get("single"), "step_seconds"),
            "lower_bound_seconds": found.get("lower_bound_seconds"),
            "num_trials": _of(found.get("search"), "num_trials"),
            "measured_speedup": measured.get("speedup"),
        }

    def sentence(self) -> str:
        """What came of it, in a few words."""
        if self.state.state == "failed":
            return self.state.error
        figures = self.figures()
        step, single = figures["step_seconds"], figures["single_step_seconds"]
        if self.state.state != "done" or step is None:
            return ""
        share = f", {step / single:.3f} of single" if single else ""
        speedup = figures["measured_speedup"]
        measured = f", measured {speedup:.2f}x" if speedup else ""
        verdict = str(figures["verdict"]).replace("_", " ")
        return f"{verdict}, {seconds_text(step)} a step{share}{measured}"


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def summary(rows: Sequence[JobRow]) -> dict[str, Any]:
    """summary.json: counts, and a row for each job."""
    states = [row.state.state for row in rows]
    return {
        "schema_version": SCHEMA_VERSION,
        "tfplace_version": __version__,
        "num_jobs": len(rows),
        "num_done": states.count("done"),
        "num_failed": states.count("failed"),
        "complete": all(state in ("done", "failed") for state in states),
        "jobs": [row.to_json() for row in rows],
    }


def write_summary(folder: Path, rows: Sequence[JobRow]) -> None:
    """Replaces the three files, each at one instant; the first also says whose folder this is."""
    found = summary(rows)
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    files = {"json": text, "csv": csv_text(COLUMNS, found["jobs"]), "md": as_markdown(rows)}
    for ending, content in files.items():
        path = str((folder / SUMMARY_FILE).with_suffix(f".{ending}"))
        write_file(path, content.encode(), overwrite=True)


def as_markdown(rows: Sequence[JobRow]) -> str:
    """Counts and a table."""
    found = summary(rows)
    lines = [
        f"{found['num_jobs']} jobs: {found['num_done']} done, {found['num_failed']} failed.",
        "",
        "| job | state | took | found |",
        "|---|---|---:|---|",
    ]
    for row in rows:
        sentence = row.sentence().replace("|", "\\|").replace("\n", " ")
        took = seconds_text(row.state.seconds)
        lines.append(f"| {row.job.name} | {row.state.state} | {took} | {sentence} |")
    return "\n".join(lines) + "\n"
