"""Progress of the longer commands: a clock on terminals, plain lines elsewhere, none if quiet."""

import io
import re
import sys

import pytest
from rich.console import Console

from tfplace.progress import TerminalProgress, clock_text, progress_for
from tfplace.search.search import SearchMoment


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
        progress = progress_for(verbosity)
        with progress.working(60.0):
            progress.say("timing [steps]")
            progress.part(1, 2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "tfplace: timing [steps]\n")


def console_on(terminal):
    return Console(file=terminal, width=80, _environ={"TERM": "xterm-256color"})


def shown(budget_seconds, done):
    """What a terminal gets while `done` of 4 parts are done."""
    terminal = Terminal()
    progress = TerminalProgress(console_on(terminal))
    with progress.working(budget_seconds):
        progress.say("began [/here]")
        progress.part(done, 4)
    return terminal.getvalue()


def test_on_a_terminal_it_says_what_time_is_left():
    found = shown(None, 0)
    assert "began [/here]" in found and "0 of 4" in found and " left" not in found
    assert "0:00 left" in shown(None, 4)
    assert "1:00:00 left" in shown(3600.4, 1)


def test_on_a_terminal_a_search_shows_its_best_step():
    terminal = Terminal()
    progress = TerminalProgress(console_on(terminal))
    with progress.working(60.0):
        progress.search(SearchMoment("annealing", 1234, 0, 3.0, 0.25, {}))
    assert "annealing: 1,234 trials, best 250 ms" in terminal.getvalue()


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    progress = progress_for(0)
    with progress.working(60.0):
        progress.say("reading [/model] now")
    assert "reading [/model] now" in terminal.getvalue()
    assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.getvalue())  # no colour; dim is none
