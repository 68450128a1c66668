"""Where later runs look for what earlier ones kept."""

from pathlib import Path

import pytest

from graphs.host.compiled import cache_directory


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPLACE_CACHE_DIR", "/own")
    assert cache_directory() == Path("/own")
    monkeypatch.delenv("TFPLACE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/tfplace")
    monkeypatch.setenv("HOME", "/home/me")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert cache_directory() == Path("/home/me/.cache/tfplace")
