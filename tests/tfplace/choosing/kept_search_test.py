"""`optimize --checkpoint_dir`: killed and run again, it ends as if it had never been killed."""

import json

import pytest

from graphs.errors import OutputError
from tfplace.choosing import baselines
from tfplace.cli import main
from tfplace.progress import LineProgress
from tfplace.proving import proof


class Killed(BaseException):
    """Stands for kill -9: what is not on the disk is lost."""


@pytest.fixture
def run(tiny_rnnlm, tmp_path, monkeypatch):
    """Runs optimize; returns its report, None where it was killed after some updates."""
    monkeypatch.setattr(baselines, "NAMES", ("given", "single", "etf"))
    monkeypatch.setattr(proof, "verified", lambda *_: proof.NOT_VERIFIED)

    def run(name, *flags, num_updates=None, seed=3, model=tiny_rnnlm):
        left = [num_updates]

        def search(lines, progress):
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed

        monkeypatch.setattr(LineProgress, "search", search)
        out = tmp_path / f"{name}_placed"
        words = ["optimize", model, "--cluster=k80x2", "--algorithm=random", "--max_trials=70"]
        words += [f"--seed={seed}", f"--output_dir={out}", "--nocost_cache", *flags]
        words.append(f"--checkpoint_dir={tmp_path / name}")
        status = main(words)
        assert status == 0
        return json.loads((out / "assets.extra/tfplace/report.json").read_text())

    return run


def test_killed_it_goes_on_and_finds_the_same(run, tmp_path, capsys):
    expected = run("whole")
    with pytest.raises(Killed):
        run("killed", num_updates=1)
    assert not (tmp_path / "killed_placed").exists()
    capsys.readouterr()
    found = run("killed")
    assert "going on with the search in" in capsys.readouterr().err
    assert found["search"]["notes"] == [
        note for note in found["search"]["notes"] if note.startswith("went on with a search")
    ]
    assert found["best"] == expected["best"]
    for report in (found, expected):
        report["history"] = [(row[0], row[2]) for row in report["search"]["history"]]
    assert found["history"] == expected["history"]
    assert found["search"]["num_trials"] == expected["search"]["num_trials"] == 70


def test_another_search_or_place_is_refused_in_one_line(tiny_rnnlm, tmp_path, run, capsys):
    with pytest.raises(Killed):
        run("kept", num_updates=0)
    capsys.readouterr()
    words = ["optimize", tiny_rnnlm, "--cluster=k80x2", f"--output_dir={tmp_path}/x"]
    words += ["--nocost_cache", f"--checkpoint_dir={tmp_path}/kept"]
    assert main(words) == 2
    assert "it was made with --algorithm random, this is auto; give the" in capsys.readouterr().err
    assert main([*words, "--algorithm=random", "--cluster=k80x4"]) == 2
    assert "made with model, run, cluster and constraints" in capsys.readouterr().err
    assert main([*words[:3], f"--output_dir={tmp_path}/x", f"--checkpoint_dir={tmp_path}/x/y"]) == (
        OutputError.exit_status
    )
    assert "give a place outside of it" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
