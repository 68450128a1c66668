"""`tfplace cache`: what is kept, and its removal."""

import json
from pathlib import Path

import numpy as np
import pytest

from graphs.host.compiled import FOLDER_NAME
from tfplace.cli import main
from tfplace.preparing.cost_cache import CacheKey, CostCache


@pytest.fixture
def folder(tmp_path: Path) -> str:
    cache = CostCache(tmp_path)
    key = CacheKey("traced", {"tensorflow": "2.21.0"}, {"model": "m.pb", "nodes": "3", "on": "cpu"})
    cache.write(key, {"seconds": np.zeros(3)})
    return str(tmp_path)


def test_it_lists_what_is_kept(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", f"--cost_cache_dir={folder}"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[-1][:5] == ["traced", "m.pb", "3", "cpu", "2.21.0"]


def test_json(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", f"--cost_cache_dir={folder}", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["directory"], found["cleared"]) == (folder, False)
    assert [entry["description"]["kind"] for entry in found["entries"]] == ["traced"]


def test_it_clears(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(folder, f"{FOLDER_NAME}1").mkdir()
    assert main(["cache", f"--cost_cache_dir={folder}", "--clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 1 entry,")
    assert list(Path(folder).iterdir()) == []
    assert main(["cache", f"--cost_cache_dir={folder}"]) == 0
    assert "no costs are kept" in capsys.readouterr().out


def test_without_a_flag_it_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFPLACE_CACHE_DIR", str(tmp_path / "own"))
    assert main(["cache", "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["directory"] == str(tmp_path / "own")
