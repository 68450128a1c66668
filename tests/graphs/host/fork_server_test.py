"""Children that are forked by a process which has imported TensorFlow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from graphs.host import child as child_module
from graphs.host.child import begin_to_fork, child_environment, start_child, start_process
from graphs.host.fork_server import ForkedProcess, ForkServer
from graphs.host.parent import connect_to_parent

MODULE = "tests.graphs.host.fork_server_test"


def main(argv: list[str]) -> None:
    """What the child does: it says what it is, and ends as it is told."""
    connection, arguments = connect_to_parent(argv)
    was_imported = "tensorflow" in sys.modules
    connection.send(
        {
            "arguments": arguments,
            "folder": os.getcwd(),
            "session": os.getsid(0),
            "cores": sorted(os.sched_getaffinity(0)),
            "test": os.environ.get("PYTEST_CURRENT_TEST"),
            "was imported": was_imported,
            "threads": psutil.Process().num_threads(),
        }
    )
    what = connection.recv()
    if what == "compute":
        import tensorflow as tf

        connection.send(float(tf.reduce_sum(tf.ones([100, 100]) @ tf.ones([100, 100]))))
    elif what == "fail":
        raise RuntimeError("the last line")
    elif what == "exit":
        sys.exit(3)


@pytest.fixture(scope="module", autouse=True)
def own_server():
    """Started with these variables: those of a test that changed some may have been others."""
    before, child_module._server = child_module._server, None
    begin_to_fork()
    yield
    assert child_module._server is not None
    child_module._server.end()
    child_module._server = before


@pytest.fixture
def forked(tmp_path):
    child = start_child(MODULE, ["one"], str(tmp_path))
    assert isinstance(child.process, ForkedProcess)
    yield child
    child.end()


def test_a_forked_child_is_as_one_that_was_started(forked, tmp_path, request):
    said = forked.receive(120)
    assert said["arguments"] == ["one"] and said["folder"] == str(tmp_path)
    assert said["session"] == forked.process.pid != os.getsid(0)
    assert said["cores"] == sorted(os.sched_getaffinity(0))
    assert request.node.name in said["test"]  # variables are those of now, not of the server
    assert said["was imported"] and said["threads"] == 1
    assert forked.process.poll() is None
    assert forked.ask("compute", 120) == 1e6
    assert forked.end_text().startswith("status 0")


def test_its_end_may_be_waited_for_without_end(forked):
    forked.receive(120)
    forked.ask("compute", 120)
    assert forked.process.wait(float("inf")) == 0


@pytest.mark.parametrize(
    ("what", "text"), [("fail", "status 1: RuntimeError: the last line"), ("exit", "status 3")]
)
def test_how_it_ended_is_told(forked, what, text):
    forked.receive(120)
    with pytest.raises(EOFError):
        forked.ask(what, 120)
    assert forked.end_text().startswith(text)
    assert forked.process.poll() == forked.process.returncode == int(text[7])


def test_one_that_is_killed_is_gone_at_once(forked):
    forked.receive(120)
    with pytest.raises(subprocess.TimeoutExpired):
        forked.process.wait(0.0)
    process = psutil.Process(forked.process.pid)
    forked.end()
    forked.end()
    assert forked.process.returncode == -signal.SIGKILL
    assert not process.is_running()


def test_it_runs_on_the_cores_that_this_process_has_now():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [max(cores)])
    try:
        child = start_child(MODULE)
        assert child.receive(120)["cores"] == [max(cores)]
        child.end()
    finally:
        os.sched_setaffinity(0, cores)


def test_where_an_import_might_read_another_variable_none_is_forked():
    child = start_child(MODULE, environment={"TF_ENABLE_ONEDNN_OPTS": "0"})
    assert isinstance(child.process, subprocess.Popen)
    assert not child.receive(120)["was imported"]
    child.end()


def test_children_end_with_the_server_and_the_next_ones_have_another(forked):
    forked.receive(120)
    server = child_module._server
    assert server is not None
    server.end()
    assert forked.process.wait(60) == -signal.SIGKILL
    child = start_child(MODULE)
    assert child.receive(120)["was imported"] and child_module._server is not server
    child.end()


def test_one_that_nobody_needs_any_more_ends_and_the_next_child_has_another():
    before = child_module._server
    idle = ForkServer(start_process, child_environment(), idle_seconds=0.1)
    child_module._server = idle
    child = start_child(MODULE)  # asked before the server has imported anything
    child.receive(120)
    child.end()
    idle._process.wait(60)
    child = start_child(MODULE)
    try:
        assert child.receive(120)["was imported"] and child_module._server is not idle
    finally:
        child.end()
        child_module._server.end()
        child_module._server = before


def test_who_asks_a_server_that_is_ending_starts_a_child_anew(monkeypatch):
    ended, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.shutdown(socket.SHUT_RD)
    with ended, theirs, monkeypatch.context() as patched:
        patched.setattr(child_module._server, "_requests", ended)
        child = start_child(MODULE)
    assert isinstance(child.process, subprocess.Popen)
    assert not child.receive(120)["was imported"]
    child.end()


def test_a_thread_gets_forked_children_but_starts_no_server():
    before, kinds = child_module._server, []

    def start() -> None:
        child = start_child(MODULE)
        kinds.append(type(child.process))
        child.end()

    def from_a_thread() -> None:
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()

    from_a_thread()
    child_module._server = None
    try:
        from_a_thread()
        assert child_module._server is None
    finally:
        child_module._server = before
    assert kinds == [ForkedProcess, subprocess.Popen]


def test_nothing_is_left_of_a_killed_process():
    code = f"""
from graphs.host.child import start_child
child = start_child({MODULE!r})
child.receive(120)
print(child.process.pid, flush=True)
child.receive(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    left = psutil.Process(parent.pid).children(recursive=True)
    assert pid in [process.pid for process in left]
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs(left, 60)
    assert alive == []


if __name__ == "__main__":
    main(sys.argv[1:])
