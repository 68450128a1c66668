"""Children that get one request and send one answer."""

import os
import signal
import sys

import pytest

from graphs.host.asked_child import AskedChild, ChildError, ask_child

MODULE = "tests.graphs.host.asked_child_test"


def main(parent):
    """A child that tells what it was asked, and does as it was told."""
    what = parent.request
    if what == "silence":
        return
    environment = os.environ.get("TFPLACE_TEST")
    parent.tell({"asked": what, "folder": os.getcwd(), "files": os.listdir(), "has": environment})
    if what == "twice":
        parent.tell("the last")
    elif what == "fail":
        raise RuntimeError("the last line")
    elif what == "abort":
        print("file.cc:1] Check failed: x\n*** stack trace ***\n  @ 0x1", file=sys.stderr)
        sys.stderr.flush()
        os.abort()
    elif what == "hang":
        signal.pause()


def test_a_child_answers_from_a_folder_of_its_own():
    answer = ask_child(MODULE, "end", 60)
    assert answer["asked"] == "end" and answer["files"] == []
    assert not os.path.exists(answer["folder"])


def test_a_long_request_arrives_as_it_is_and_leaves_no_file():
    long = "end" + "x" * 1_000_000
    answer = ask_child(MODULE, long, 60)
    assert answer["asked"] == long and answer["files"] == []


def test_a_child_has_what_its_environment_is_given():
    with AskedChild(MODULE, {"TFPLACE_TEST": "here"}) as child:
        child.ask("end")
        assert child.answer(60)["has"] == "here"


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


def test_a_child_that_holds_more_memory_than_it_may_gives_up():
    with pytest.raises(ChildError, match=r"it held more than 0\.0 GiB of memory") as caught:
        ask_child(MODULE, "hang", 60, memory_bytes=0.0)
    assert caught.value.gave_up and not caught.value.is_timeout
    before = caught.value.last_message
    assert before is None or before["asked"] == "hang"  # it may end before it tells anything
