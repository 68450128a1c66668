"""Tests of tfplace.commands.quiet: what reaches a terminal, and what is kept from it."""

import logging
import os
import subprocess
import sys

import pytest

from tfplace.commands.quiet import quiet_tensorflow

NATIVE = """
import os, sys
from tfplace.commands.quiet import NativeStderr
native = NativeStderr()
native.divert()
os.write(2, b"I0000 00:00:1 port.cc:153] oneDNN is on\\nthe graph is broken\\n\\n")
print("of Python", file=sys.stderr)
print(native.tail(), end="")
"""


def printed_by(code, **options):
    words = [sys.executable, "-c", code]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, **options)


def test_native_lines_are_diverted_and_noise_is_left_out_of_the_tail():
    done = printed_by(NATIVE, stderr=subprocess.PIPE)
    assert (done.stdout, done.stderr) == ("the graph is broken\n", "of Python\n")


def test_a_closed_stderr_is_left_alone():
    code = (
        "from tfplace.commands.quiet import NativeStderr as N; n = N(); n.divert(); print(n.tail())"
    )
    assert printed_by(code, preexec_fn=lambda: os.close(2)).stdout == "\n"


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (-1, ["an error"]),
        (0, ["a warning", "an error"]),
        (1, ["a word", "a warning", "an error"]),
        (2, ["a word", "a warning", "an error"]),
    ],
)
def test_log_lines_are_shown_by_verbosity(verbosity, shown, monkeypatch, capsys):
    for name in ("TF_FORCE_GPU_ALLOW_GROWTH", "TF_CPP_MIN_LOG_LEVEL", "GLOG_minloglevel"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    quiet_tensorflow(verbosity)
    logger = logging.getLogger("tfplace.search")
    logger.info("a %s", "word")
    logger.warning("a warning")
    logger.error("an error")
    assert capsys.readouterr().err == "".join(f"tfplace: {line}\n" for line in shown)
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == ("3" if verbosity < 2 else None)


def test_what_the_user_wants_of_tensorflow_stays(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    quiet_tensorflow(0)
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "1"
