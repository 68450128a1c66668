"""Tests of tfplace.runs.batch.display and of the command: what a person sees, and the status."""

import dataclasses
import io
import json
import sys
import time

import pytest
from rich.console import Console

from tfplace.cli import main
from tfplace.runs.batch import display
from tfplace.runs.batch.display import (
    LineListener,
    TableListener,
    final_table,
    listener_for,
    live_table,
)
from tfplace.runs.batch.job_state import Job, JobState
from tfplace.runs.batch.run_jobs import Listener
from tfplace.runs.batch.summary import JobRow


def row(name, state, error="", **fields):
    return JobRow(Job(name, 1, name, error=error), JobState("", state, error=error, **fields))


def printed(table):
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_lines_say_what_begins_and_what_has_ended(capsys):
    listener = LineListener()
    rows = [row("a", "waiting"), row("b", "failed", "no flag --y"), row("c", "done")]
    with listener.watching(rows):
        listener.change(row("a", "running", attempts=2), 2, 3)
        listener.change(row("a", "failed", seconds=1.5, error="it is no model"), 3, 3)
    assert capsys.readouterr().err.splitlines() == [
        "tfplace: 3 jobs, 0 of them done before",
        "tfplace: line 1 can't run: no flag --y",
        "tfplace: a begins, attempt 2",
        "tfplace: 3/3 a failed in 1.5 s: it is no model",
    ]


def test_the_table_shows_first_what_runs_or_failed():
    rows = [row(f"job{number}", "done", seconds=2.0) for number in range(27)]
    began = time.monotonic() - 2000.0
    rows.append(dataclasses.replace(row("job27", "running"), began=began))
    rows += [row("job28", "waiting"), row("job29", "failed", "it is no model")]
    lines = printed(live_table(rows))
    assert lines[0] == "1 waiting, 1 running, 27 done, 1 failed"
    assert lines[1].split() == ["job", "state", "time", "found"]
    assert lines[2].split() == ["job0", "done", "2", "s"]
    assert [line.split()[:3] for line in lines[-4:]] == [
        ["job27", "running", "2,000"], ["job28", "waiting", "-"], ["job29", "failed", "-"],
        ["…", "10", "more"],
    ]  # fmt: skip
    assert len(lines) == 2 + 20 + 1


def test_the_last_table_has_all_rows_and_no_time_of_what_did_not_end():
    rows = [row(f"job{number}", "done", seconds=2.0) for number in range(30)]
    rows[3] = dataclasses.replace(row("job3", "running"), began=time.monotonic())
    lines = printed(final_table(rows))
    assert lines[0].split() == ["job", "state", "took", "found"]
    assert lines[4].split() == ["job3", "running", "-"]
    assert len(lines) == 1 + 30


@pytest.mark.parametrize(
    ("command", "result", "found"),
    [
        ("simulate", {"step_seconds": 0.25}, "250 ms a step"),
        ("measure", {"given": {"median_seconds": 0.5}, "speedup": 1.0}, "given 500 ms a step"),
        (
            "measure",
            {"given": {"median_seconds": 0.5}, "placed": {"median_seconds": 0.25}, "speedup": 2.0},
            "250 ms a step, measured 2.00x",
        ),
        (
            "solve",
            {
                "verdict": "placed",
                "best": {"step_seconds": 0.25},
                "baselines": {"single": {"step_seconds": 0.5}},
            },
            "placed, 250 ms a step, 0.500 of single",
        ),
        ("inspect", {"step_seconds": 0.25}, ""),
    ],
)
def test_what_other_commands_found_is_told(command, result, found):
    job = Job("a", 1, "a", command=command)
    assert JobRow(job, JobState("", "done"), result).sentence() == found


@pytest.mark.parametrize(("verbosity", "is_terminal", "kind"), [
    (0, True, TableListener), (1, False, LineListener), (-1, True, Listener)])  # fmt: skip
def test_what_is_shown_fits_stderr(verbosity, is_terminal, kind, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    assert type(listener_for(verbosity)) is kind


def test_a_terminals_table_is_gone_at_the_end(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, width=60, force_terminal=True, color_system=None)
    monkeypatch.setattr(display, "Console", lambda **options: console)
    with TableListener().watching([row("a", "waiting")]):
        pass
    shown = screen.getvalue()
    assert "1 waiting" in shown and shown.endswith("\x1b[2K")  # its last line is cleared


def test_the_command_prints_and_ends_as_its_jobs_did(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").write_text("m.pb --nosuch=1\n")
    assert main(["batch", "jobs", "--format=json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["num_failed"] == 1
    assert "line 1 can't run" in captured.err
    assert main(["batch", "jobs", "--verbosity=-1", "--output_dir=o"]) == 2
    captured = capsys.readouterr()
    assert captured.err == (
        "tfplace: error: running a batch: 1 of 1 jobs failed; o/summary.md says why; the same "
        "command tries them again\n"
    )
    assert max(map(len, captured.out.splitlines())) <= 80
    assert "line-1  failed" in captured.out and "written   o/summary.json" in captured.out
    assert main(["batch", "nowhere"]) == 2
    assert "reading the jobs in nowhere: No such file" in capsys.readouterr().err
    assert main(["batch", "."]) == 2
    assert "reading the jobs in .: Is a directory" in capsys.readouterr().err
