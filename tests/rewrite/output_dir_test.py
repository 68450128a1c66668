"""Directories that appear whole or not at all."""

from __future__ import annotations

import os

import pytest

from graphs.errors import OutputError
from rewrite.output_dir import atomic_directory


def test_a_new_directory_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "deep" / "out"
    with atomic_directory(target, overwrite=False) as made:
        (made / "file").write_text("content")
        assert not target.exists()
    assert (target / "file").read_text() == "content"
    assert os.listdir(target.parent) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(error), atomic_directory(target, overwrite=True) as made:
        (made / "file").write_text("content")
        raise error
    assert os.listdir(target) == ["old"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_failing_rename_brings_the_old_one_back(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("old")
    rename = os.rename

    def failing(source, destination):
        if str(source).endswith("new"):
            raise OSError("disk full")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", failing)
    with (
        pytest.raises(OutputError, match="disk full; free the disk"),
        atomic_directory(target, overwrite=True),
    ):
        pass
    assert os.listdir(target) == ["old"]


def test_what_is_made_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "out"
    with (
        pytest.raises(OutputError, match="something else made it meanwhile"),
        atomic_directory(target, overwrite=False),
    ):
        target.mkdir()
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_that_leads_nowhere_is_something_too(tmp_path):
    target = tmp_path / "out"
    target.symlink_to(tmp_path / "nowhere")
    with (
        pytest.raises(OutputError, match="it exists already"),
        atomic_directory(target, overwrite=False),
    ):
        pass
    assert target.is_symlink()


def test_an_unusable_parent_is_an_output_error(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with (
        pytest.raises(OutputError, match="give an --output_dir that can be written"),
        atomic_directory(tmp_path / "file" / "out", overwrite=False),
    ):
        pass


def test_what_a_killed_process_left_is_removed_and_a_running_ones_kept(tmp_path):
    target = tmp_path / "out"
    stale = tmp_path / ".out.abc.unfinished"
    stale.mkdir()
    (stale / "lock").write_text("")
    other = tmp_path / ".other.abc.unfinished"
    other.mkdir()
    (other / "lock").write_text("")
    with atomic_directory(target, overwrite=False) as outer:
        assert not stale.exists()
        with atomic_directory(target, overwrite=True):
            assert outer.exists()
        assert outer.exists()
        target.rmdir()
    assert sorted(os.listdir(tmp_path)) == [".other.abc.unfinished", "out"]
