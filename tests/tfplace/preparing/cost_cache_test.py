"""Entries on disk: whole or not there, whatever happens to them."""

import concurrent.futures
import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from graphs.errors import OutputError
from tfplace.preparing import cost_cache
from tfplace.preparing.cost_cache import CacheKey, CostCache
from tfplace.preparing.find_costs import traced_arrays, traced_from
from tfplace.preparing.node_seconds import TracedNodes

KEY = CacheKey("traced", {"graph": "abc", "tensorflow": "2.21.0"}, {"model": "m.pb"})
ARRAYS = {"seconds": np.array([1.0, np.nan])}


@pytest.fixture
def cache(tmp_path: Path) -> CostCache:
    return CostCache(tmp_path / "made" / "when needed")


def _only_file(cache: CostCache) -> Path:
    (entry,) = cache.entries()
    return Path(entry.path)


def test_what_was_written_is_read(cache: CostCache) -> None:
    assert cache.read(KEY) is None
    cache.write(KEY, ARRAYS)
    found = cache.read(KEY)
    assert found is not None
    np.testing.assert_array_equal(found["seconds"], ARRAYS["seconds"])
    assert list(found) == ["seconds"]


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(KEY, kind="work"),
        dataclasses.replace(KEY, parts={**KEY.parts, "graph": "abd"}),
        dataclasses.replace(KEY, parts={**KEY.parts, "tensorflow": "2.22.0"}),
    ],
)
def test_another_key_is_another_entry(cache: CostCache, other: CacheKey) -> None:
    cache.write(KEY, ARRAYS)
    assert cache.read(other) is None


def test_labels_are_not_part_of_the_key(cache: CostCache) -> None:
    cache.write(KEY, ARRAYS)
    assert cache.read(dataclasses.replace(KEY, labels={"model": "moved.pb"})) is not None


def test_another_version_reads_nothing(cache: CostCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(KEY, ARRAYS)
    monkeypatch.setattr(cost_cache, "COST_VERSION", cost_cache.COST_VERSION + 1)
    assert cache.read(KEY) is None


@pytest.mark.parametrize("damage", [b"", b"no zip file", None])
def test_a_damaged_entry_is_told_and_written_anew(
    cache: CostCache, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    cache.write(KEY, ARRAYS)
    path = _only_file(cache)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    with caplog.at_level(logging.WARNING, "tfplace"):
        assert cache.read(KEY) is None
    assert "can't be read" in caplog.text
    assert cache.entries()[0].description == {}
    cache.write(KEY, ARRAYS)
    assert cache.read(KEY) is not None


def test_writers_at_the_same_time_leave_one_whole_entry(cache: CostCache) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        values = [{"seconds": np.full(1000, float(i))} for i in range(40)]
        list(pool.map(lambda arrays: cache.write(KEY, arrays), values))
        found = list(pool.map(lambda _: cache.read(KEY), range(40)))
    assert all(arrays is not None and len(set(arrays["seconds"])) == 1 for arrays in found)
    assert [path.name for path in _only_file(cache).parent.iterdir()] == [KEY.file_name]


def test_a_folder_that_can_not_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    blocked = CostCache(tmp_path / "file" / "folder")
    with caplog.at_level(logging.WARNING, "tfplace"):
        blocked.write(KEY, ARRAYS)
        assert blocked.read(KEY) is None
    assert "can't be kept" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    cache = CostCache(None)
    cache.write(KEY, ARRAYS)
    assert cache.read(KEY) is None
    assert (cache.entries(), cache.clear()) == ([], [])


def test_clearing_removes_entries_and_leftovers_and_nothing_else(cache: CostCache) -> None:
    cache.write(KEY, ARRAYS)
    folder = _only_file(cache).parent
    (folder / ".traced-abc.costs.npz.x7w").write_text("half")
    (folder / "notes.txt").write_text("mine")
    (removed,) = cache.clear()
    assert removed.description == {"kind": "traced", **KEY.parts, **KEY.labels}
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert cache.clear() == []


def test_an_entry_that_can_not_be_removed(cache: CostCache) -> None:
    cache.write(KEY, ARRAYS)
    path = _only_file(cache)
    path.unlink()
    path.mkdir()
    with pytest.raises(OutputError, match="can't be removed"):
        cache.clear()


TRACED = TracedNodes(
    np.array([1.0, np.nan]), np.array([False, True]), np.array([7, -1]), 0.5, 0.9, 5, 1, 0.125
)


def test_values_survive_the_cache(cache: CostCache) -> None:
    cache.write(KEY, traced_arrays(TRACED))
    traced = traced_from(cache.read(KEY) or {}, 2)
    assert traced is not None
    np.testing.assert_array_equal(traced.seconds, TRACED.seconds)
    np.testing.assert_array_equal(traced.place, TRACED.place)
    assert dataclasses.astuple(traced)[3:] == dataclasses.astuple(TRACED)[3:]


def test_arrays_of_another_graph_are_refused() -> None:
    assert traced_from(traced_arrays(TRACED), 3) is None
    assert traced_from({**traced_arrays(TRACED), "seconds": np.array([1.0, -1.0])}, 2) is None
    assert traced_from({"seconds": TRACED.seconds}, 2) is None
