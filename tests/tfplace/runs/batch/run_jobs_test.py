"""Tests of tfplace.runs.batch.run_jobs: each job is done once, whatever ends the batch before."""

import csv
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from graphs.errors import OutputError
from tfplace.runs.batch import job_state, run_jobs, summary
from tfplace.runs.batch.job_state import Job
from tfplace.runs.batch.run_jobs import Listener, run_batch
from tfplace.runs.executors.program import Ended

REPORT = {
    "verdict": "placed",
    "algorithm": "auto",
    "cluster": {"name": "k80x2"},
    "baselines": {"given": {"step_seconds": 2.0}, "single": {"step_seconds": 1.0}},
    "best": {"step_seconds": 0.5},
    "lower_bound_seconds": 0.4,
    "search": {"num_trials": 7},
    "measured": {"speedup": 1.9},
}


class Scripted:
    """Jobs that end at once: "bad" fails; each that ran is noted with its words."""

    def __init__(self):
        self.ran = []
        self.stopped = False

    def run(self, work):
        if self.stopped:
            return None
        self.ran.append(work.arguments[1])
        self.last = work.arguments
        if work.arguments[1] == "bad":
            return Ended(2, b"", "tfplace: error: reading bad: it is no model\n")
        if work.arguments[1] == "broken":
            raise ZeroDivisionError("float division")
        return Ended(0, json.dumps(REPORT).encode(), "", host="here")

    def stop(self):
        self.stopped = True


def jobs_of(*names, **fields):
    return [Job(name, i, name, words=(name,), **fields) for i, name in enumerate(names, start=1)]


@pytest.fixture
def run(tmp_path):
    """Runs jobs; returns names and states of the rows, and what ran in which order."""

    def run(jobs, executor=None, listener=None, **options):
        executor = executor or Scripted()
        batch = run_batch(jobs, executor, listener or Listener(), str(tmp_path / "out"), **options)
        states = {row.job.name: row.state.state for row in batch.rows}
        return states, executor.ran

    return run


def read_summary(tmp_path):
    return json.loads((tmp_path / "out/summary.json").read_text())


def test_a_failing_job_ends_nobody_and_is_tried_again_alone(run, tmp_path):
    jobs = [*jobs_of("a", "bad", "broken", "b"), Job("line-5", 5, "x --y", error="no flag --y")]
    states, ran = run(jobs)
    assert ran == ["a", "bad", "broken", "b"]
    assert states == {"a": "done", "bad": "failed", "broken": "failed", "b": "done",
                      "line-5": "failed"}  # fmt: skip
    found = read_summary(tmp_path)
    assert (found["num_jobs"], found["num_done"], found["num_failed"]) == (5, 2, 3)
    assert found["complete"]
    errors = [job["error"] for job in found["jobs"]]
    assert errors[:2] == ["", "reading bad: it is no model"] and errors[4] == "no flag --y"
    assert "ZeroDivisionError" in errors[2]
    assert run(jobs)[1] == ["bad", "broken"]
    assert [job["attempts"] for job in read_summary(tmp_path)["jobs"]] == [1, 2, 2, 1, 0]
    assert run(jobs, resume=False)[1] == ["a", "bad", "broken", "b"]


def test_summary_has_the_figures_in_all_three_files(run, tmp_path):
    run([*jobs_of("a"), Job("p|q", 2, "devices", command="devices", words=("bad",))])
    job = read_summary(tmp_path)["jobs"][0]
    wanted = {
        "name": "a", "state": "done", "model": "a", "attempts": 1, "exit_status": 0, "error": "",
        "host": "here", "verdict": "placed", "algorithm": "auto", "cluster": "k80x2",
        "step_seconds": 0.5, "given_step_seconds": 2.0, "single_step_seconds": 1.0,
        "lower_bound_seconds": 0.4, "num_trials": 7, "measured_speedup": 1.9,
    }  # fmt: skip
    assert {key: job[key] for key in wanted} == wanted
    with (tmp_path / "out/summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["step_seconds"]) for row in rows] == [("a", "0.5"), ("p|q", "")]
    markdown = (tmp_path / "out/summary.md").read_text()
    assert "2 jobs: 1 done, 1 failed." in markdown
    assert "placed, 500 ms a step, 0.500 of single, measured 1.90x" in markdown
    assert (tmp_path / "out/jobs/a/result.json").exists()


def test_a_changed_line_is_done_again_and_may_replace_what_was_its_own(run, tmp_path):
    place = str(tmp_path / "placed")
    one = Job("a", 1, "a", words=("a",), outputs=(place,), has_overwrite=True)
    executor = Scripted()
    run([one], executor)
    assert "--overwrite" not in executor.last
    os.mkdir(place)
    changed = Job("a", 1, "a", words=("a", "--seed=2"), outputs=(place,), has_overwrite=True)
    executor = Scripted()
    assert run([changed], executor)[1] == ["a"]
    assert executor.last == ["optimize", "a", "--seed=2", "--overwrite", "--format=json"]


def test_what_was_there_before_the_job_is_never_replaced(run, tmp_path):
    place = str(tmp_path / "placed")
    os.mkdir(place)
    for _ in range(2):
        executor = Scripted()
        run([Job("bad", 1, "bad", words=("bad",), outputs=(place,), has_overwrite=True)], executor)
        assert executor.last == ["optimize", "bad", "--format=json"]


class Killed(BaseException):
    """Stands for kill -9: nothing after it is written."""


class Writing(Scripted):
    """Its jobs put their output in place and are killed before anybody knows."""

    def __init__(self, place, interrupted):
        super().__init__()
        self.place, self.report = place, {**REPORT, "search": {"interrupted": interrupted}}

    def run(self, work):
        super().run(work)
        if self.place.exists():
            self.place.rename(self.place.with_name(f"old{len(list(self.place.parent.iterdir()))}"))
        extra = self.place / "assets.extra/tfplace"
        extra.mkdir(parents=True)
        (extra / "report.json").write_text(json.dumps(self.report))
        raise Killed


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_job_whose_output_was_whole_when_it_was_killed_is_done(run, tmp_path, interrupted):
    place = tmp_path / "placed"
    job = Job("a", 1, "a", words=("a",), outputs=(str(place),), has_overwrite=True)
    with pytest.raises(Killed):
        run([job], Writing(place, interrupted))
    states, ran = run([job])
    assert states == {"a": "done"}
    assert ran == (["a"] if interrupted else [])
    if not interrupted:
        found = read_summary(tmp_path)["jobs"][0]
        assert (found["step_seconds"], found["was_done"]) == (0.5, True)


def test_what_an_earlier_attempt_has_written_is_not_this_ones_output(run, tmp_path):
    place = tmp_path / "placed"
    job = Job("a", 1, "a", words=("a",), outputs=(str(place),), has_overwrite=True)
    with pytest.raises(Killed):
        run([job], Writing(place, interrupted=False))

    class DiesAtOnce(Scripted):
        def run(self, work):
            raise Killed

    with pytest.raises(Killed):
        run([job], DiesAtOnce(), resume=False)
    assert run([job])[1] == ["a"]


def test_a_training_goes_on_by_itself(run, tmp_path):
    place = str(tmp_path / "p.npz")
    job = Job("bad", 1, "", command="train", words=("bad",), outputs=(place,), has_overwrite=True)
    run([job])
    (tmp_path / "p.npz").write_text("half")
    executor = Scripted()
    run([job], executor)
    assert "--overwrite" not in executor.last


@pytest.mark.parametrize("kill_at", range(1, 34))
def test_killed_at_any_write_the_next_run_does_the_rest(run, tmp_path, monkeypatch, kill_at):
    """Each of 3 jobs writes 3 files and 2 summaries of 3 files, the batch 2 summaries more."""
    writes = []
    write_file = run_jobs.write_file  # type: ignore[attr-defined]

    def write(path, content, overwrite):
        writes.append(path)
        if len(writes) >= kill_at:
            raise Killed
        write_file(path, content, overwrite)

    jobs = jobs_of("a", "b", "c")
    with monkeypatch.context() as patched:
        for module in (run_jobs, job_state, summary):
            patched.setattr(module, "write_file", write)
        with pytest.raises(Killed):
            run(jobs)
    folders = [tmp_path / "out/jobs" / name / "state.json" for name in "abc"]
    states = [json.loads(path.read_text())["state"] if path.exists() else "" for path in folders]
    was_done = [name for name, state in zip("abc", states, strict=True) if state == "done"]
    states, ran = run(jobs)
    assert set(states.values()) == {"done"}
    assert ran == [name for name in "abc" if name not in was_done]
    found = read_summary(tmp_path)
    assert found["complete"] and found["num_done"] == 3
    assert run(jobs)[1] == []


def test_ctrl_c_ends_it_and_the_next_run_goes_on(run, tmp_path):
    class Stoppable(Scripted):
        """Waits in the third job until it is stopped."""

        def __init__(self):
            super().__init__()
            self.event = threading.Event()

        def run(self, work):
            if work.arguments[1] == "c":
                self.event.wait()
            return super().run(work)

        def stop(self):
            super().stop()
            self.event.set()

    class Press(Listener):
        """In the main thread's stead: the signal goes to the process."""

        def change(self, row, num_ended, num_jobs):
            if row.job.name == "c":
                os.kill(os.getpid(), signal.SIGINT)

    jobs = jobs_of("a", "b", "c", "d")
    states, _ = run(jobs, Stoppable(), Press())
    assert states == {"a": "done", "b": "done", "c": "running", "d": "waiting"}
    assert not read_summary(tmp_path)["complete"]
    assert run(jobs)[1] == ["c", "d"]


def test_a_folder_of_others_or_of_a_running_batch_is_refused(run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("")
    with pytest.raises(OutputError, match=r"holds other things, such as 'thesis.tex'"):
        run(jobs_of("a"))
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    (out / "thesis.tex").unlink()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="another process of tfplace is at work there"):
            run(jobs_of("a"))
    assert run(jobs_of("a"))[1] == ["a"]


def test_a_damaged_state_means_that_the_job_is_done_again(run, tmp_path):
    run(jobs_of("a", "b"))
    (tmp_path / "out/jobs/a/state.json").write_text('{"state": "done"')
    (tmp_path / "out/jobs/b/state.json").write_text('{"fingerprint": "x", "state": "odd"}')
    assert run(jobs_of("a", "b"))[1] == ["a", "b"]


def test_a_process_killed_after_the_first_of_four_jobs_does_each_once(tmp_path):
    """The second job reads a cluster file that first is a pipe: it hangs there until killed."""
    box = tmp_path / "box.json"
    os.mkfifo(box)
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("cache --cost_cache_dir=1\ndevices --cluster=box.json\n"
                    "cache --cost_cache_dir=3\ncache --cost_cache_dir=4\n")  # fmt: skip
    words = [sys.executable, "-m", "tfplace", "batch", str(jobs)]
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}}
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **options)
    with box.open("w") as pipe:  # opens when the job does
        first.kill()
        first.wait()
        poll = select.poll()
        poll.register(pipe, 0)
        assert poll.poll() == [(pipe.fileno(), select.POLLERR)]  # the orphan has died
    assert "1/4 cache-1 done" in first.stderr.read()
    first.stderr.close()
    summary = tmp_path / "jobs_batch/summary.json"
    before = json.loads(summary.read_text())
    assert not before["complete"] and before["num_done"] == 1
    box.unlink()
    box.write_text(json.dumps(cluster_to_json(named("k80x2"))))
    second = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert second.returncode == 0, second.stderr
    after = json.loads(summary.read_text())
    assert after["complete"] and after["num_done"] == 4
    assert [(j["name"], j["attempts"], j["was_done"]) for j in after["jobs"]] == [
        ("cache-1", 1, True), ("devices-box", 2, False), ("cache-3", 1, False),
        ("cache-4", 1, False),
    ]  # fmt: skip
    assert after["jobs"][0]["ended"] == before["jobs"][0]["ended"]
    assert "4 jobs, 1 of them done before" in second.stderr
