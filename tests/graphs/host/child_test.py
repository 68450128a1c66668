"""Children that answer, fail, hang and die with their parents."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from graphs.host.child import child_environment, start_child, start_process
from graphs.host.parent import connect_to_parent

MODULE = "tests.graphs.host.child_test"


def main(argv: list[str]) -> None:
    """What the child does: it answers, and then does as it was told."""
    connection, arguments = connect_to_parent(argv)
    while True:
        what = connection.recv()
        connection.send({"asked": what, "folder": os.getcwd(), "arguments": arguments})
        if what == "end":
            return
        if what == "hang":
            signal.pause()


@pytest.fixture
def child():
    child = start_child(MODULE, ["one", "two"])
    yield child
    child.end()


def test_a_conversation_with_a_child(child):
    said = {"asked": "a", "folder": "/", "arguments": ["one", "two"]}
    assert child.ask("a", 60) == said
    with pytest.raises(TimeoutError):
        child.receive(0.0)
    assert child.ask("end", 60)["asked"] == "end"
    with pytest.raises(EOFError):
        child.receive(60)
    with pytest.raises(EOFError):
        child.ask("b", 60)
    assert child.end_text() == "status 0: it said nothing"


def test_a_child_does_not_wait_until_its_time_is_over_for_a_process_that_has_ended(
    child, monkeypatch
):
    monkeypatch.setattr("graphs.host.child._UNSERVED_SECONDS", 0.1)
    assert child.ask("hang", 60, lambda: False)["asked"] == "hang"
    with pytest.raises(EOFError):
        child.receive(600, lambda: False)


def test_a_child_that_is_ended_is_gone_at_once_and_may_be_ended_again():
    child = start_child(MODULE)
    child.end()
    child.end()
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_finds_the_packages_leads_a_session_and_is_quiet(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/a")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    assert child_environment()["PYTHONPATH"] == os.pathsep.join([os.getcwd(), "/a"])
    assert child_environment()["TF_CPP_MIN_LOG_LEVEL"] == "2"
    with start_process("site", ["--user-site"], stdout=subprocess.PIPE) as process:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
        process.communicate()


def test_a_child_dies_with_the_thread_that_started_it():
    started = []

    def start():
        started.append(start_child(MODULE, needs_tensorflow=False))
        started[0].ask("a", 60)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert started[0].process.wait(60) == -signal.SIGKILL
    started[0].end()


def test_a_child_dies_with_its_killed_parent():
    """The parent is a process that waits for a hanging child; the child says who it is."""
    code = f"""
from graphs.host.child import start_child
child = start_child({MODULE!r})
child.ask("a", 60)
print(child.process.pid, flush=True)
child.ask("hang", 600), child.receive(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    handle = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    ended, _, _ = select.select([handle], [], [], 60)
    os.close(handle)
    assert ended == [handle]


if __name__ == "__main__":
    main(sys.argv[1:])
