"""Machine code that is kept is never stale, and keeping it never stands in the way."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core.caching import FunctionCache

from graphs.host import compiled as compiled_module
from graphs.host.compiled import (
    FOLDER_NAME,
    NUM_KEPT,
    cache_folder,
    compiled,
    compiled_part,
    sources_hash,
)

ROOT = Path(__file__).parents[3]
INNER = """
import numba
from graphs.host.compiled import compiled_part

FACTOR = 2.0

@compiled_part
def part(x):
    return FACTOR * x

@numba.njit(cache=True)
def part_of_plain(x):
    return FACTOR * x
"""
OUTER = """
import numba
from graphs.host.compiled import compiled
from tfplace.inner import part, part_of_plain

@compiled
def whole(x):
    return part(x)

@numba.njit(cache=True)
def plain_whole(x):
    return part_of_plain(x)
"""
LAYOUT = """
WIDTH = 1
"""


def _tree(root: Path) -> None:
    """Two compiled sources, one calling the other, beside copies of what declares them."""
    files = {
        "graphs/__init__.py": "",
        "graphs/host/__init__.py": "",
        "tfplace/__init__.py": "",
        "tfplace/inner.py": INNER,
        "tfplace/outer.py": OUTER,
        "tfplace/unrelated.py": LAYOUT,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copy(ROOT / "graphs/host/compiled.py", root / "graphs/host/compiled.py")


def test_after_an_edit_of_what_a_function_calls_the_new_code_runs(tmp_path):
    _tree(tmp_path)
    code = "from tfplace.outer import whole, plain_whole; print(whole(1.0), plain_whole(1.0))"
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }

    def run():
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert run() == ["2.0", "2.0"]
    inner = tmp_path / "tfplace/inner.py"
    inner.write_text(INNER.replace("FACTOR = 2.0", "FACTOR = 3.0"))
    # Numba alone runs what it compiled before the edit.
    assert run() == ["3.0", "2.0"]
    folders = [path.name for path in (tmp_path / "cache").glob(f"{FOLDER_NAME}*")]
    assert len(folders) == 2


def test_the_hash_is_of_what_can_become_part_of_compiled_code(tmp_path, monkeypatch):
    _tree(tmp_path)
    inner, layout = tmp_path / "tfplace/inner.py", tmp_path / "tfplace/layout.py"
    layout.write_text(LAYOUT)
    hashes = [sources_hash(tmp_path)]

    def is_new():
        hashes.append(sources_hash(tmp_path))
        return hashes[-1] not in hashes[:-1]

    (tmp_path / "tfplace/unrelated.py").write_text("WIDTH = 2")
    assert not is_new()
    inner.write_text(f"from tfplace.layout import WIDTH\n{INNER}")
    assert is_new()
    layout.write_text("WIDTH = 2")  # declares nothing, but a compiled source imports it
    assert is_new()
    inner.rename(tmp_path / "tfplace/other.py")
    assert is_new()
    monkeypatch.setattr(numba, "__version__", "0.0")
    assert is_new()
    monkeypatch.setattr(compiled_module, "get_host_cpu_name", lambda: "another")
    assert is_new()


def test_two_checkouts_of_the_same_sources_keep_apart(tmp_path):
    """What one has noted as compiled is not there for the other: Numba looks for it by path."""
    for name in ("one", "other"):
        _tree(tmp_path / name)
    assert sources_hash(tmp_path / "one") != sources_hash(tmp_path / "other")


def test_the_hash_holds_every_source_of_ours_that_declares_or_shapes_compiled_code():
    names = {path.relative_to(ROOT).as_posix() for path in compiled_module._compiled_sources(ROOT)}
    assert {
        "tfplace/simulation/kernel.py",
        "tfplace/simulation/rules_1_to_6.py",
        "tfplace/simulation/rules_7_to_10.py",
        "tfplace/simulation/event_heap.py",
        "tfplace/simulation/arrays.py",
        "tfplace/simulation/scratch.py",
    } <= names
    assert not any(name.startswith("tfplace/report") for name in names)


@pytest.fixture
def parent(tmp_path, monkeypatch):
    """A user's NUMBA_CACHE_DIR."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_folder_lies_in_the_users_and_the_last_used_ones_stay(parent):
    for age in range(NUM_KEPT + 3):
        old = parent / f"{FOLDER_NAME}{age}"
        old.mkdir(parents=True)
        os.utime(old, (1e9 - age, 1e9 - age))
    (parent / "somebody_elses").mkdir()
    folder = cache_folder.__wrapped__()  # it is new: one of those to be kept
    assert folder == parent / f"{FOLDER_NAME}{sources_hash(ROOT)}"
    assert {path.name for path in parent.iterdir()} == {
        folder.name,
        "somebody_elses",
        *(f"{FOLDER_NAME}{age}" for age in range(NUM_KEPT - 1)),
    }
    assert cache_folder.__wrapped__() == folder


def test_a_folder_that_may_be_in_use_stays(parent):
    for number in range(NUM_KEPT + 3):
        (parent / f"{FOLDER_NAME}{number}").mkdir(parents=True)
    cache_folder.__wrapped__()
    assert len(list(parent.iterdir())) == NUM_KEPT + 4


def test_without_the_users_folder_it_lies_in_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("TFPLACE_CACHE_DIR", str(tmp_path))
    assert cache_folder.__wrapped__() == tmp_path / f"{FOLDER_NAME}{sources_hash(ROOT)}"


def test_where_nothing_can_be_written_functions_compile_all_the_same(parent, monkeypatch, caplog):
    parent.write_text("no folder")
    assert cache_folder.__wrapped__() is None
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in caplog.text
    monkeypatch.setattr(compiled_module, "cache_folder", lambda: None)

    @compiled
    def double(x):
        return 2 * x

    assert double(3) == 6
    assert not double.stats.cache_path  # type: ignore[attr-defined]


def _compiled_anew():
    def double(x):
        return 2 * x

    return compiled(double)


@pytest.mark.parametrize(("ending", "size"), [("nbc", 100), ("nbc", 0), ("nbi", 0), ("nbi", 40)])
def test_a_damaged_file_is_compiled_anew_and_replaced(parent, monkeypatch, ending, size):
    monkeypatch.setattr(compiled_module, "cache_folder", lambda: parent)
    parent.mkdir()
    assert _compiled_anew()(3) == 6
    for file in parent.rglob(f"*.{ending}"):
        os.truncate(file, size)
    assert _compiled_anew()(3) == 6
    again = _compiled_anew()
    assert again(3) == 6
    assert sum(again.stats.cache_hits.values()) == 1  # type: ignore[attr-defined]


def test_where_the_disk_is_full_functions_run_and_it_is_said_once(parent, monkeypatch, caplog):
    def is_full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compiled_module, "cache_folder", lambda: parent)
    monkeypatch.setattr(FunctionCache, "save_overload", is_full)
    compiled_module._warn_not_kept.cache_clear()
    parent.mkdir()
    assert [_compiled_anew()(3), _compiled_anew()(4)] == [6, 8]
    assert caplog.text.count(f"{parent}") == 1


@pytest.mark.parametrize(
    ("mode", "group", "is_taken"),
    [(0o755, 0, True), (0o775, 0, True), (0o775, 1, False), (0o757, 0, False), (0o1777, 0, True)],
)
def test_code_that_others_may_write_is_not_run(parent, monkeypatch, mode, group, is_taken):
    parent.mkdir()
    parent.chmod(mode)
    monkeypatch.setattr(os, "getegid", lambda: parent.stat().st_gid + group)
    assert (cache_folder.__wrapped__() is not None) == is_taken


def test_code_of_another_user_is_not_run(parent, monkeypatch):
    parent.mkdir()
    monkeypatch.setattr(
        Path, "stat", lambda path: os.stat_result((0o40755, 1, 1, 1, 4711, 0, *[0] * 4))
    )
    assert cache_folder.__wrapped__() is None


def test_other_functions_find_numbas_setting_as_it_was(parent):
    @compiled
    def double(x):
        return 2 * x

    assert str(cache_folder()) in double.stats.cache_path  # type: ignore[attr-defined]
    assert str(parent) == numba.config.CACHE_DIR


def test_a_part_runs_alone_and_in_a_compiled_function():
    @compiled_part
    def double(x):
        return 2 * x

    @compiled
    def twice(x):
        return double(double(x))

    assert (double(3), twice(3)) == (6, 12)
