"""Directories that appear whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.errors import OutputError
from rewrite import output_dir
from rewrite.output_dir import atomic_directory, scratch_beside

ROOT = Path(__file__).parents[2]


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
    monkeypatch.setattr(output_dir, "exchange", lambda made, target: False)
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


def test_a_second_run_with_the_same_target_is_told_before_it_begins(tmp_path):
    code = (
        "import sys\nfrom rewrite.output_dir import scratch_beside\n"
        "with scratch_beside(sys.argv[1]):\n    print(flush=True), sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        with pytest.raises(OutputError, match="another run writes there"):
            scratch_beside(tmp_path / "out").__enter__()
        with scratch_beside(tmp_path / "out.of"), scratch_beside(tmp_path / "ou"):
            other.stdin.close()
    with scratch_beside(tmp_path / "out"):
        pass


def test_what_was_killed_between_two_renames_comes_back(tmp_path):
    stale = tmp_path / ".out.abc.unfinished"
    (stale / "old").mkdir(parents=True)
    (stale / "old" / "file").write_text("old")
    (stale / "lock").write_text("")
    with pytest.raises(ValueError), atomic_directory(tmp_path / "out", overwrite=True):
        raise ValueError
    assert (tmp_path / "out" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("old")
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with (
            pytest.raises(OutputError, match="free the disk or give another"),
            atomic_directory(target, overwrite=True) as made,
        ):
            (made / "file").write_bytes(bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (os.listdir(tmp_path), os.listdir(target)) == (["out"], ["old"])


_WRITER = """
import sys
from rewrite.output_dir import atomic_directory, scratch_beside
print("go", flush=True)
while True:
    with atomic_directory(sys.argv[1], overwrite=True) as made:
        for name in "abc":
            (made / name).write_text(name)
"""


def test_a_kill_at_any_moment_leaves_a_whole_directory(tmp_path):
    target = tmp_path / "out"
    for moment in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(target)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None and writer.stdout.readline() == b"go\n"
        for _ in range(moment * 2000):
            os.getpid()
        writer.kill()
        writer.wait()
        writer.stdout.close()
        if target.exists():
            assert sorted(os.listdir(target)) == ["a", "b", "c"]
        else:
            assert moment == 0 or not any(tmp_path.glob(".out.*/old"))
    with atomic_directory(target, overwrite=True):
        pass
    assert os.listdir(tmp_path) == ["out"]
