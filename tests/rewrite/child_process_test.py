"""Children that fail, hang up and answer."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rewrite.child_process import ChildError, run_child, write_result

MODULE = "tests.rewrite.child_process_test"


def main(argv: list[str]) -> None:
    """What the child does: it answers, and then does as it was told."""
    request = json.loads(Path(argv[1]).read_text())
    write_result(argv[2], {"asked": request["do"], "folder": os.getcwd()})
    if request["do"] == "fail":
        raise RuntimeError("the last line")
    if request["do"] == "abort":
        os.abort()
    if "told" in request:
        Path(request["told"]).write_text(str(os.getpid()))
    if request["do"] == "hang":
        signal.pause()


def test_a_child_answers_from_a_folder_of_its_own():
    answer = run_child(MODULE, {"do": "answer"}, 60)
    assert answer["asked"] == "answer"
    assert not os.path.exists(answer["folder"])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("fail", "it failed: RuntimeError: the last line"),
        ("abort", "it was killed by SIGABRT"),
    ],
)
def test_what_a_child_wrote_before_its_end_is_kept(what, message):
    with pytest.raises(ChildError, match=message) as caught:
        run_child(MODULE, {"do": what}, 60)
    assert caught.value.partial["asked"] == what


def test_a_child_that_hangs_is_ended():
    with pytest.raises(ChildError, match=r"it took more than 0\.1 s"):
        run_child(MODULE, {"do": "hang"}, 0.1)


def test_a_child_dies_with_its_killed_parent(tmp_path):
    """The parent is a process that waits for a hanging child; the child says who it is."""
    told = tmp_path / "pid"
    code = f"""
from rewrite.child_process import run_child
run_child({MODULE!r}, {{"do": "hang", "told": {str(told)!r}}}, 600)
"""
    os.mkfifo(told)
    parent = subprocess.Popen([sys.executable, "-c", code])
    child = int(told.read_text())  # waits until the child writes it
    handle = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    ended, _, _ = select.select([handle], [], [], 60)
    os.close(handle)
    assert ended == [handle]


if __name__ == "__main__":
    main(sys.argv)
