"""What was freed goes back to the system."""

import ctypes

import psutil

from graphs.host.freed_memory import give_back


def test_what_is_freed_between_what_is_used_goes_back():
    pieces = [bytes(100_000) for _ in range(1000)]
    kept = pieces[::100]
    before = psutil.Process().memory_info().rss
    del pieces
    give_back()
    assert before - psutil.Process().memory_info().rss > 50_000_000 and len(kept) == 10


def test_without_such_a_call_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    give_back()
