"""Progress of the longer commands: a clock on terminals, plain lines elsewhere, none if quiet."""

import io
import re
import sys

import pytest
from rich.console import Console

from tfplace.progress import watch_for
from tfplace.telling import ClockTeller, clock_text, telling


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3.0, "0:00"), (7.4, "0:07"), (61.0, "1:01"), (3599.6, "1:00:00"), (7325.0, "2:02:05")],
)
def test_times_as_on_a_clock(seconds, text):
    assert clock_text(seconds) == text


def test_lines_where_there_is_no_terminal_and_none_if_quiet(capsys):
    for verbosity in (0, -1):
        with telling(verbosity, 60.0) as tell:
            tell("timing [steps]")
            tell.part(1, 2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "tfplace: timing [steps]\n")


def shown(teller, terminal, done):
    with teller.progress:
        teller("began [/here]")
        teller.part(done, 4)
        teller.progress.refresh()
    return terminal.getvalue()


def console_on(terminal, **environment):
    return Console(file=terminal, width=80, _environ={"TERM": "xterm-256color", **environment})


def test_on_a_terminal_it_says_what_time_is_left():
    terminal = Terminal()
    found = shown(ClockTeller(None, console_on(terminal)), terminal, 0)
    assert "began [/here]" in found and "0 of 4" in found and " left" not in found
    terminal = Terminal()
    assert "0:00 left" in shown(ClockTeller(None, console_on(terminal)), terminal, 4)
    terminal = Terminal()
    assert "1:00:00 left" in shown(ClockTeller(3600.4, console_on(terminal)), terminal, 1)


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    watch_for(0).stage("reading [/model] now")
    with telling(0, 60.0) as tell:
        tell("timing ops")
    assert "reading [/model] now" in terminal.getvalue()
    assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.getvalue())  # no colour; dim is none
