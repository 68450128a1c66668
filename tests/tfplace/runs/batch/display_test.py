"""Tests of tfplace.runs.batch.display and of the command: what a person sees, and the status."""

import io
import json

from rich.console import Console

from tfplace.cli import main
from tfplace.runs.batch.display import LineListener, TableListener
from tfplace.runs.batch.job import Job
from tfplace.runs.batch.job_state import JobState
from tfplace.runs.batch.summary import JobRow


def row(name, state, error="", **fields):
    return JobRow(Job(name, 1, name, error=error), JobState("", state, error=error, **fields))


def test_lines_count_what_has_ended(capsys):
    listener = LineListener()
    listener.begin([row("a", "waiting"), row("b", "failed", "no flag --y"), row("c", "done")])
    listener.change(0, row("a", "running", attempts=2))
    listener.change(0, row("a", "failed", seconds=1.5, error="it is no model"))
    assert capsys.readouterr().err.splitlines() == [
        "tfplace: 3 jobs, 0 of them done before",
        "tfplace: line 1 can't run: no flag --y",
        "tfplace: a begins, attempt 2",
        "tfplace: 3/3 a failed in 1.5 s: it is no model",
    ]


def test_the_table_shows_first_what_runs_or_failed():
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    listener = TableListener(console)
    listener.begin([row(f"job{number}", "done", seconds=2.0) for number in range(30)])
    listener.change(29, row("job29", "failed", "it is no model"))
    listener.change(28, row("job28", "waiting"))
    listener.change(27, row("job27", "running"))
    console.print(listener.table())
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[0] == "1 waiting, 1 running, 27 done, 1 failed"
    assert lines[1].split() == ["job", "state", "time", "found"]
    assert lines[2].split() == ["job0", "done", "2", "s"]
    assert [line.split()[:2] for line in lines[-4:]] == [
        ["job27", "running"], ["job28", "waiting"], ["job29", "failed"], ["…", "10"],
    ]  # fmt: skip
    assert len(lines) == 2 + 20 + 1


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
    assert main(["batch", "nowhere"]) == 1
    assert "reading the jobs in nowhere: No such file" in capsys.readouterr().err
