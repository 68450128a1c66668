"""Checkpoints: what is written is read again; whatever else lies there is one clear error."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from graphs.errors import CheckpointError
from tfplace.algorithms.learned.training.checkpoint import (
    read_checkpoint,
    shipped_names,
    write_checkpoint,
)
from tfplace.cli import main


@pytest.fixture
def path(trained, tmp_path):
    name = str(tmp_path / "policy.npz")
    write_checkpoint(name, trained)
    return name


def _rewritten(path, change):
    """The file again, after `change(arrays, facts)`."""
    with np.load(path) as file:
        arrays = dict(file)
    facts = json.loads(str(arrays.pop("facts")))
    change(arrays, facts)
    np.savez(path, facts=np.array(json.dumps(facts)), **arrays)


def test_round_trip(trained, path):
    again = read_checkpoint(path)
    assert dataclasses.replace(again, arrays={}) == dataclasses.replace(trained, arrays={})
    assert again.arrays.keys() == trained.arrays.keys()
    for name, array in trained.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda arrays, facts: facts.update(kind="a poem"), "a poem"),
        (lambda arrays, facts: facts.update(version=99), "version 99, wanted 1"),
        (lambda arrays, facts: facts.pop("sizes"), "there is no 'sizes'"),
        (lambda arrays, facts: facts["sizes"].update(units=0), "units is 0"),
        (lambda arrays, facts: facts["sizes"].update(units=8), "has shape"),
        (lambda arrays, facts: facts["sizes"].update(group_width=3), "train again"),
        (lambda arrays, facts: facts["recipe"].update(color="red"), "color"),
        (lambda arrays, facts: arrays.pop("policy/0"), "policy/0"),
        (lambda arrays, facts: arrays["policy/0"].fill(np.nan), "no numbers"),
    ],
)
def test_a_file_that_is_not_quite_ours_is_refused(path, change, found):
    _rewritten(path, change)
    with pytest.raises(CheckpointError, match=found):
        read_checkpoint(path)


def test_pickles_are_never_opened(path):
    np.savez(path, facts=np.array([{"kind": 1}], dtype=object))
    with pytest.raises(CheckpointError, match="allow_pickle"):
        read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"no zip at all", None])
def test_optimize_says_in_one_line_that_a_policy_is_damaged(content, path, tmp_path, capsys):
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2] if content is None else content)
    model = tmp_path / "model.pb"  # is not read before the policy
    model.write_bytes(b"no model")
    words = ["optimize", str(model), f"--policy={path}", "--verbosity=-1"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"reading the policy '{path}'" in error


@pytest.mark.parametrize(
    ("words", "status", "found"),
    [
        (["--policy=/nowhere/p.npz"], 2, "there is no such file"),
        (["--policy=/dev/zero"], 2, "it is a device"),
        (["--policy=/"], 2, "reading the policy '/'"),
        (["--policy=shipped:rnnml"], 2, "did you mean 'rnnlm'"),
        (["--policy=rnnlm", "--algorithm=post"], 1, "--algorithm=post"),
    ],
)
def test_a_policy_that_can_not_be_used_is_an_error_before_the_model_is_read(
    words, status, found, tmp_path, capsys
):
    (tmp_path / "model.pb").write_bytes(b"no model")
    assert main(["optimize", str(tmp_path / "model.pb"), "--verbosity=-1", *words]) == status
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and found in error


@pytest.mark.parametrize("family", shipped_names())
def test_shipped_policies_fit_this_version(family):
    checkpoint = read_checkpoint(f"shipped:{family}")
    assert checkpoint.recipe.family == family and checkpoint.episodes > 0
    assert read_checkpoint(family).recipe == checkpoint.recipe


def test_policies_ship():
    assert shipped_names()
