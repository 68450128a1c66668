"""Tests of runs.executors.local: what comes back, limits, and that nothing is left behind."""

import mmap
import os
import sys
import threading

import pytest

from tfplace.runs.executors.local import LocalExecutor, memory_bytes
from tfplace.runs.executors.program import Ended, Program


@pytest.fixture
def run(tmp_path):
    """Runs a script as a module; the executor and the work's own fields can be given."""

    def run(script, executor=None, **fields):
        (tmp_path / "scripted.py").write_text(script)
        environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                       "PYTHONDONTWRITEBYTECODE": "1", **fields.pop("environment", {})}  # fmt: skip
        environment["PYTHONPATH"] += os.pathsep + os.getcwd()
        arguments = fields.pop("arguments", [])
        work = Program("scripted", arguments, environment=environment, **fields)
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
    assert memory_bytes(int(ended.output)) == 0


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


def test_memory_is_what_a_process_has_for_itself():
    before = memory_bytes(os.getpid())
    size = 64 << 20
    block = bytearray(size)
    grown = memory_bytes(os.getpid()) - before
    with open(sys.executable, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as m:
        assert sum(m[::4096]) > 0  # pages of a file are shared with everybody who maps them
        assert memory_bytes(os.getpid()) - before - grown < 1 << 20
    assert 0.9 * size < grown < 1.1 * size and len(block) == size
