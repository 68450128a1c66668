"""Files and directories that are there whole or not at all."""

import os

import pytest

from graphs.errors import OutputError
from graphs.host.whole_file import exchange, is_stream, write_whole


def test_a_file_is_replaced_and_a_failing_writer_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    write_whole(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, fail)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told(tmp_path):
    def full(file):
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left on device; choose another place"):
        write_whole(tmp_path / "file", full)
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_whole(link, lambda file: file.write(b"new"))
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    write_whole(pipe, lambda file: file.write(b"text"))
    assert os.read(reader, 9) == b"text" and is_stream(pipe)
    os.close(reader)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_two_directories_swap_their_names(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if exchange(tmp_path / "a", tmp_path / "b"):
        assert (tmp_path / "a" / "b").exists() and (tmp_path / "b" / "a").exists()
    assert not exchange(tmp_path / "a", tmp_path / "missing")


def test_permissions_are_the_users_choice(tmp_path):
    secret, shared = tmp_path / "secret", tmp_path / "shared"
    secret.write_bytes(b"old")
    secret.chmod(0o600)
    before = os.umask(0o002)
    try:
        for path in (secret, shared):
            write_whole(path, lambda file: file.write(b"new"))
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (secret, shared)] == [0o600, 0o664]
