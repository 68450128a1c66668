"""Tests of runs.executors.local: what comes back, limits, and that nothing is left behind."""

import os
import threading

import pytest

from tfplace.runs.executors.local import LocalExecutor
from tfplace.runs.executors.process_tree import descendants, memory_bytes
from tfplace.runs.executors.work_item import Ended, WorkItem


@pytest.fixture
def run(tmp_path):
    """Runs a script as a module; the executor and the work's own fields can be given."""

    def run(script, executor=None, **fields):
        (tmp_path / "scripted.py").write_text(script)
        environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                       "PYTHONDONTWRITEBYTECODE": "1", **fields.pop("environment", {})}  # fmt: skip
        environment["PYTHONPATH"] += os.pathsep + os.getcwd()
        arguments = fields.pop("arguments", [])
        work = WorkItem("scripted", arguments, environment=environment, **fields)
        return (executor or LocalExecutor()).run(work)

    return run


def test_output_log_and_arguments(run, tmp_path):
    log = tmp_path / "log"
    log.write_text("tfplace: error: of an earlier attempt\n")
    ended = run(
        "import os, sys\n"
        "print(sys.argv[1:], os.environ['X'], os.getcwd()); print('e', file=sys.stderr)",
        arguments=["a b", "in {place}/f"],
        folders={"place": "/p"},
        environment={"X": "1"},
        directory=str(tmp_path),
        log=str(log),
    )  # fmt: skip
    assert ended.status == 0 and ended.failure() == ""
    assert ended.output.decode() == f"['a b', 'in /p/f'] 1 {tmp_path}\n"
    assert log.read_text() == "tfplace: error: of an earlier attempt\ne\n"
    assert ended.complaints == "e\n"


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        (Ended(0, b"", "a warning\n"), ""),
        (Ended(2, b"", "tfplace: error: reading x: y\nlast words\n"), "reading x: y"),
        (Ended(1, b"", "one\nValueError: two\n\n"), "ValueError: two"),
        (Ended(3, b"", ""), "status 3"),
        (Ended(-11, b"", "something before\n"), "killed by SIGSEGV"),
        (Ended(-9, b"", "", "no end within 1 s"), "no end within 1 s"),
    ],
)
def test_the_reason_of_a_failure_is_a_sentence(ended, failure):
    assert ended.failure() == failure


def test_at_the_time_limit_it_is_killed_with_what_it_started(run, tmp_path):
    script = (
        "import signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True); signal.pause()"
    )
    ended = run(script, time_limit_seconds=0.8)
    assert ended.failure() == "no end within 0.8 s: it was killed" and ended.status == -9
    assert memory_bytes([int(ended.output)]) == 0


def test_memory_counts_children_and_ends_at_the_limit(run):
    script = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', "
        "'x = bytearray(300 << 20); import signal; signal.pause()'])"
    )
    ended = run(script, memory_limit_bytes=200 << 20)
    assert "of memory, with 200 MiB allowed: it was killed" in ended.failure()


def test_stop_ends_what_runs_and_starts_nothing(run, tmp_path):
    executor, ready = LocalExecutor(), tmp_path / "ready"
    os.mkfifo(ready)
    found = []
    script = f"import signal; open({str(ready)!r}, 'w').close(); signal.pause()"
    thread = threading.Thread(target=lambda: found.append(run(script, executor)))
    thread.start()
    ready.read_text()  # waits until it has begun
    executor.stop()
    thread.join()
    assert found == [None]
    assert run("", executor) is None


def test_descendants_and_memory_are_read_from_proc(tmp_path):
    def process(number, parent, kilobytes):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "stat").write_text(f"{number} (a) b) S {parent} 1 1 0")
        (folder / "status").write_text(f"Name:\tx\nRssAnon:\t{kilobytes} kB\nRssFile:\t9 kB\n"
                                       "RssShmem:\t1 kB\n")  # fmt: skip

    for row in ((10, 1, 4), (11, 10, 8), (12, 11, 16), (13, 1, 32)):
        process(*row)
    (tmp_path / "14").mkdir()  # ended between two readings
    (tmp_path / "self").mkdir()
    assert sorted(descendants(10, tmp_path)) == [10, 11, 12]
    assert memory_bytes([10, 11, 12, 99], tmp_path) == (4 + 8 + 16 + 3) * 1024
    assert descendants(99, tmp_path) == [99]
