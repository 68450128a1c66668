"""Children that answer, fail, hang and die with their parents."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from graphs.host.child import (
    AskedChild,
    ChildError,
    ask_child,
    cause_in,
    child_environment,
    connect_to_parent,
    start_child,
    start_process,
)

MODULE = "tests.graphs.host.child_test"
_TRACE = "Traceback (most recent call last):\n  File 'a.py', line 3, in f\n    ValueError: quoted\n"
_OP_FAILED = """errors_impl.NotFoundError: Graph execution error:

Detected at node 'save/RestoreV2' defined at (most recent call last):
  File "build.py", line 55, in _import
Node: 'save/RestoreV2'
Unsuccessful TensorSliceReader constructor: Failed to find any matching files for ck/model
\t [[{{node save/RestoreV2}}]]

Original stack trace for 'save/RestoreV2':
  File "build.py", line 55, in _import
    v1.train.import_meta_graph(meta_graph, clear_devices=True)
"""


def main(argv: list[str]) -> None:
    """What the child does: it answers, and then does as it was told."""
    connection, arguments = connect_to_parent(argv)
    while True:
        what = connection.recv()
        if what == "silence":
            return
        files = [] if os.getcwd() == "/" else os.listdir()
        about = {"folder": os.getcwd(), "files": files, "arguments": arguments}
        if "TFPLACE_TEST" in os.environ:
            about["of the environment"] = os.environ["TFPLACE_TEST"]
        connection.send({"asked": what, **about})
        if what == "twice":
            connection.send("the last")
            return
        if what.startswith("end"):
            return
        if what == "fail":
            raise RuntimeError("the last line")
        if what == "abort":
            print("file.cc:1] Check failed: x\n*** stack trace ***\n  @ 0x1", file=sys.stderr)
            sys.stderr.flush()
            os.abort()
        if what == "hang":
            signal.pause()


@pytest.fixture
def child():
    child = start_child(MODULE, ["one", "two"])
    yield child
    child.end()


def test_a_child_answers_from_a_folder_of_its_own():
    answer = ask_child(MODULE, "end", 60)
    assert answer["asked"] == "end" and answer["arguments"] == []
    assert not os.path.exists(answer["folder"])


def test_a_long_request_arrives_as_it_is_and_leaves_no_file():
    long = "end" + "x" * 1_000_000
    answer = ask_child(MODULE, long, 60)
    assert answer["asked"] == long and answer["files"] == []


def test_a_child_has_what_its_environment_is_given():
    with AskedChild(MODULE, {"TFPLACE_TEST": "here"}) as child:
        child.ask("end")
        assert child.answer(60)["of the environment"] == "here"


def test_the_last_message_is_the_answer():
    assert ask_child(MODULE, "twice", 60) == "the last"


@pytest.mark.parametrize(
    ("what", "message", "last"),
    [
        ("fail", "it failed: RuntimeError: the last line", "fail"),
        ("abort", "it was killed by SIGABRT: file.cc:1] Check failed: x", "abort"),
        ("silence", "it failed: it said nothing", None),
    ],
)
def test_why_a_child_failed_is_said_and_its_last_message_kept(what, message, last):
    with pytest.raises(ChildError) as caught:
        ask_child(MODULE, what, 60)
    error = caught.value
    assert str(error) == message and not error.is_timeout
    assert error.last_message == last or error.last_message["asked"] == last


def test_a_child_that_hangs_is_ended():
    with pytest.raises(ChildError, match=r"it took more than 0\.1 s") as caught:
        ask_child(MODULE, "hang", 0.1)
    assert caught.value.is_timeout


def test_a_conversation_with_a_child(child):
    said = {"asked": "a", "folder": "/", "files": [], "arguments": ["one", "two"]}
    assert child.ask("a", 60) == said
    with pytest.raises(TimeoutError):
        child.receive(0.0)
    assert child.ask("end", 60)["asked"] == "end"
    with pytest.raises(EOFError):
        child.receive(60)
    with pytest.raises(EOFError):
        child.ask("b", 60)
    assert child.end_text() == "status 0: it said nothing"


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


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        ("", "it said nothing"),
        ("one\n  two\n\n", "two"),
        (f"{_TRACE}KeyError: 'x'\n\nwarning: late\n", "KeyError: 'x'"),
        ("F0000 Check failed: a == b\n*** trace ***\nlast", "F0000 Check failed: a == b"),
        (
            _TRACE + _OP_FAILED,
            "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
            "ck/model",
        ),
        (f"{_TRACE}a.b.NotFoundError: 1\nat\nbad [[{{{{node x}}}}]]", "bad"),
    ],
)
def test_the_cause_is_the_line_that_says_why(stderr, cause):
    assert cause_in(stderr) == cause
