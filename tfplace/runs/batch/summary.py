"""What came of each job, as JSON, CSV and Markdown: each file is whole at any moment."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphs.counted import counted
from graphs.protos import Json
from tfplace.output_paths import write_file
from tfplace.runs.batch.job_state import Job, JobState
from tfplace.runs.tables import csv_text, markdown_table
from tfplace.units_text import seconds_text
from tfplace.version import __version__

SCHEMA_VERSION = 1
SUMMARY_FILE = "summary.json"
SUMMARY_FILES = (SUMMARY_FILE, "summary.csv", "summary.md")
# Figures of a search, and where they stand in what `optimize` and `solve` print.
FIGURES = {
    "verdict": ("verdict",),
    "algorithm": ("algorithm",),
    "cluster": ("cluster", "name"),
    "step_seconds": ("best", "step_seconds"),
    "given_step_seconds": ("baselines", "given", "step_seconds"),
    "single_step_seconds": ("baselines", "single", "step_seconds"),
    "lower_bound_seconds": ("lower_bound_seconds",),
    "num_trials": ("search", "num_trials"),
    "measured_speedup": ("measured", "speedup"),
}
# Likewise of the commands that look at a placement that there is already.
_FIGURES_OF: Mapping[str, Mapping[str, Sequence[str]]] = {
    "optimize": FIGURES,
    "solve": FIGURES,
    "simulate": {"step_seconds": ("step_seconds",)},
    "measure": {
        "given_step_seconds": ("given", "median_seconds"),
        "step_seconds": ("placed", "median_seconds"),
        "measured_speedup": ("speedup",),
    },
}
COLUMNS = (
    "name", "state", "command", "model", "seconds", "attempts", *FIGURES, "exit_status", "error",
    "host", "output",
)  # fmt: skip
_OF_JOB = ("name", "line", "line_number", "command")
_OF_STATE = ("attempts", "seconds", "exit_status", "error", "host", "ended")


@dataclasses.dataclass(frozen=True)
class JobRow:
    """A job in the table.

    Attributes:
      job: the job.
      state: how far it is.
      result: what it printed as JSON, None where it did not.
      was_done: whether an earlier run of the batch did it.
      began: time.monotonic() when its attempt began, None where it isn't running.
    """

    job: Job
    state: JobState
    result: Json = None
    was_done: bool = False
    began: float | None = None

    def to_json(self) -> dict[str, Json]:
        """A job of summary.json."""
        words, outputs = self.job.words, self.job.outputs
        return {
            **{key: getattr(self.job, key) for key in _OF_JOB},
            "model": words[0] if words and not words[0].startswith("-") else None,
            "state": self.state.state,
            "was_done": self.was_done,
            **{key: getattr(self.state, key) for key in _OF_STATE},
            "output": outputs[0] if outputs else None,
            **self.figures(),
        }

    def figures(self) -> dict[str, Json]:
        """What was found, None for what the command doesn't say."""
        where = _FIGURES_OF.get(self.job.command, {})
        return {name: _value_at(self.result, where.get(name, ("",))) for name in FIGURES}

    def sentence(self) -> str:
        """What came of it, in a few words."""
        if self.state.state == "failed":
            return self.state.error
        figures = self.figures()
        step, given = figures["step_seconds"], figures["given_step_seconds"]
        if self.state.state != "done" or (step is None and given is None):
            return ""
        if step is None:
            return f"given {seconds_text(given)} a step"
        verdict = str(figures["verdict"] or "").replace("_", " ")
        single, speedup = figures["single_step_seconds"], figures["measured_speedup"]
        parts = (
            verdict,
            f"{seconds_text(step)} a step",
            f"{step / single:.3f} of single" if single else "",
            f"measured {speedup:.2f}x" if speedup else "",
        )
        return ", ".join(filter(None, parts))

    def cells(self) -> tuple[str, str, str, str]:
        """Name, state, time and sentence: what a person is shown."""
        state = self.state
        return self.job.name, state.state, seconds_text(state.seconds), self.sentence()


def _value_at(value: Json, keys: Sequence[str]) -> Json:
    """value[key][key]..., None where there is no such thing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def summary(rows: Sequence[JobRow]) -> dict[str, Json]:
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
    counts = summary(rows)
    jobs = counted(len(rows), "job")
    head = f"{jobs}: {counts['num_done']} done, {counts['num_failed']} failed.\n\n"
    table = markdown_table(
        ("job", "state", "took", "found"), ("took",), [row.cells() for row in rows]
    )
    contents = (
        json.dumps(counts, indent=1, allow_nan=False) + "\n",
        csv_text(COLUMNS, counts["jobs"]),
        head + table,
    )
    for name, content in zip(SUMMARY_FILES, contents, strict=True):
        write_file(str(folder / name), content.encode(), overwrite=True)
