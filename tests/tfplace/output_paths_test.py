"""Output is checked first, filled aside, and there whole or not at all."""

import errno
import os

import pytest

from graphs.errors import OutputError
from tfplace.output_paths import (
    default_output_dir,
    require_apart,
    require_free,
    require_replaceable,
    writable,
    write_file,
)


@pytest.mark.parametrize(
    ("model", "output"),
    [
        ("model.pb", "model_placed"),
        ("a/b/model.pbtxt", "a/b/model_placed"),
        ("a/saved/", "a/saved_placed"),
        ("a/saved/saved_model.pb", "a/saved_placed"),
        ("net.keras", "net_placed"),
    ],
)
def test_the_default_name_is_the_models_stem(model, output):
    assert default_output_dir(model) == output


@pytest.mark.parametrize("model", [".", "./", "saved_model.pb", "../net"])
def test_a_folder_that_is_named_by_where_it_lies(model, tmp_path, monkeypatch):
    folder = tmp_path / "net"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert (tmp_path / "net" / default_output_dir(model)).resolve() == tmp_path / "net_placed"
    assert default_output_dir("") == default_output_dir(".")  # no such model; that is said later


def test_what_exists_is_kept_unless_told_otherwise(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(OutputError, match="exists already"):
        require_free(str(target), overwrite=False)
    write_file(str(target), b"new", overwrite=True)
    assert target.read_text() == "new"


def test_a_folder_of_something_else_is_never_replaced(tmp_path):
    placed = tmp_path / "placed"
    require_replaceable(str(placed), overwrite=True)
    placed.mkdir()
    require_replaceable(str(placed), overwrite=True)
    (placed / "thesis.tex").touch()
    with pytest.raises(OutputError, match="holds no model, and all that is in it would be lost"):
        require_replaceable(str(placed), overwrite=True)
    with pytest.raises(OutputError, match="a file stands there"):
        require_replaceable(str(placed / "thesis.tex"), overwrite=True)
    (placed / "assets.extra" / "tfplace").mkdir(parents=True)  # as of --emit=graph_def
    require_replaceable(str(placed), overwrite=True)
    with pytest.raises(OutputError, match="exists already"):
        require_replaceable(str(placed), overwrite=False)


def test_a_device_file_is_written_to_and_none_is_put_in_its_place():
    with writable("/dev/null"):
        write_file("/dev/null", b"text", overwrite=False)
    assert os.stat("/dev/null").st_rdev == os.makedev(1, 3)


def test_the_model_that_is_read_is_never_the_output(tmp_path):
    model = tmp_path / "saved"
    for output in (model, tmp_path):
        with pytest.raises(OutputError, match="would be lost"):
            require_apart(str(output), str(model))
    require_apart(str(tmp_path / "saved_placed"), str(model))


def test_what_is_written_lies_where_its_path_leads(tmp_path):
    path = tmp_path / "missing" / ".." / "a" / "b"
    with pytest.raises(KeyError), writable(str(path)):
        raise KeyError
    assert not list(tmp_path.iterdir())
    with writable(str(path)):
        path.write_text("as printed")


def test_a_name_that_is_too_long_is_told_before_work_begins(tmp_path):
    with pytest.raises(OutputError, match="name too long"), writable(str(tmp_path / ("n" * 300))):
        pass


def test_a_full_temporary_folder_is_named(tmp_path, monkeypatch):
    def is_full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", is_full)
    with pytest.raises(OutputError, match=r"temporary folder .* set TMPDIR"), writable():
        pass
