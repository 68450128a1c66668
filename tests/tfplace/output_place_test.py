"""Output is checked first, filled aside, and there whole or not at all."""

import pytest

from graphs.errors import OutputError
from tfplace.output_place import default_output_dir, require_free, staged, write_file


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


def test_what_exists_is_kept_unless_told_otherwise(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(OutputError, match="exists already"):
        require_free(str(target), overwrite=False)
    write_file(str(target), b"new", overwrite=True)
    assert target.read_text() == "new"


def test_a_failure_leaves_the_old_state(tmp_path):
    target = tmp_path / "deep" / "out"
    with pytest.raises(RuntimeError), staged(str(target), overwrite=False) as filled:
        (tmp_path / "deep").exists()
        open(filled, "w").write("half")
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []


def test_success_replaces_the_old_directory_whole(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("")
    with staged(str(target), overwrite=True) as filled:
        import os

        os.mkdir(filled)
        open(os.path.join(filled, "new"), "w").close()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_while_replacing_keeps_the_old_directory(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("")
    with pytest.raises(OutputError), staged(str(target), overwrite=True):
        pass  # nothing was filled, so there is nothing to rename
    assert [path.name for path in target.iterdir()] == ["old"]
