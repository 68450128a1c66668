"""How the loop is judged: figures by hand and, marked, a whole row that is tiny."""

import itertools
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from tests.loop import __main__ as command
from tests.loop.noise import bursts
from tests.loop.other import place_by_other, read_by_name
from tests.loop.result import WRITTEN, Judged, from_json
from tests.loop.table import result_file, text
from tests.rival.contestant import RivalError
from tests.tables.rewrite_docs import table

STEADY = np.array([0.99, 1.0, 1.01, 0.995, 1.005, 0.99, 1.01, 1.0, 0.995, 1.005])
REPORT = {"verdict": "placed", "verdict_sentence": "1.50x faster", "split": None, "best": {}}


def made_up(**changed):
    runs = {WRITTEN: 0.2 * STEADY, "single": 0.3 * STEADY, "m-ETF": 0.15 * STEADY}
    failed = {"minimum cut": "it stalled", "data parallel": "too little memory"}
    ranks = {"spearman": 0.9, "reliability": 0.95, "placements": 11}
    fields = {"row": "rnnlm", "noise": 0.3, "optimize_seconds": 80.0, "report": REPORT}
    fields |= {"seconds": {"ranks": 30.0}}
    fields |= {"runs": runs, "failed": failed, "predicted_seconds": 0.19, "ranks": ranks}
    return Judged(**{**fields, **changed})


def test_what_was_written_is_held_against_each_rival():
    judged = made_up()
    assert judged.over("single").ratio == pytest.approx(1.5)
    assert judged.over("minimum cut") is None
    assert judged.slower_than == ["m-ETF"]
    assert judged.prediction_error == pytest.approx(-0.05)
    assert judged.rank_share == pytest.approx(0.9 / 0.95)


def test_what_nobody_knows_is_none():
    judged = made_up(runs={"single": STEADY}, ranks={})
    assert (judged.prediction_error, judged.rank_share, judged.slower_than) == (None, None, [])
    assert "not ranked" in text(judged)


def test_a_row_is_the_same_after_json():
    kept = json.loads(json.dumps(made_up().as_json()))
    assert kept["slower_than"] == ["m-ETF"]
    assert json.loads(json.dumps(from_json(kept).as_json())) == kept


def test_the_text_has_80_columns_and_the_page_a_row():
    lines = text(made_up()).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("m-ETF is faster, beyond noise" in line for line in lines)
    origin = {"command": "python x", "machine": "2 cores", "commit": "c", "transcribed": False}
    shown = table(result_file([made_up()], origin))
    assert "| rnnlm | 30% | placed | 200 | 1.50 (1.50 to 1.50) | did not run |" in shown
    assert any("judging took: 30 s (ranks 30)" in line for line in lines)
    assert "| -5% | 0.90, 0.95 |" in shown


def test_noise_takes_its_share():
    taken = np.array(list(itertools.islice(bursts(0.3, random.Random(1)), 4000)))
    work, pause = taken.sum(axis=0)
    assert work / (work + pause) == pytest.approx(0.3, abs=0.02)
    assert next(bursts(1.0, random.Random(1)))[1] == 0.0


def test_rows_that_are_kept_are_not_made_again(tmp_path, monkeypatch):
    path, made = tmp_path / "rows.json", []

    def judge(name, share, options, say):
        made.append((name, share))
        return made_up(row=name, noise=share)

    monkeypatch.setattr(command, "judge", judge)
    words = ["--row=nmt", "--row=cnn", f"--json={path}", f"--folder={tmp_path}"]
    command.main(words[1:])
    command.main(words)
    command.main([*words, "--noise=0.3"])
    assert made == [("cnn", 0.0), ("nmt", 0.0), ("nmt", 0.3), ("cnn", 0.3)]
    assert len(json.loads(path.read_text())) == 4


def test_a_row_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def judge(name, share, options, say):
        if name == "nmt":
            raise RivalError("no model")
        return made_up(row=name, noise=share)

    monkeypatch.setattr(command, "judge", judge)
    path = tmp_path / "rows.json"
    with pytest.raises(SystemExit):
        command.main(["--row=nmt", "--row=cnn", f"--json={path}"])
    assert len(json.loads(path.read_text())) == 1
    said = capsys.readouterr()
    assert "nmt, noise 0%: no model" in said.out and "not judged: nmt" in said.err


def test_what_another_checkout_chose_is_read_by_name(tmp_path):
    graph = SimpleNamespace(op_names=[f"op{i}" for i in range(10)])
    problem = SimpleNamespace(graph=graph, device_names=("/device:CPU:0", "/device:CPU:1"))
    prepared = SimpleNamespace(problem=problem, given=np.zeros(10, np.int32))
    file = tmp_path / "placement.json"
    devices = {f"op{i}": "/device:CPU:1" for i in range(1, 10)} | {"gone": "/device:CPU:0"}
    file.write_text(json.dumps(devices))
    assert read_by_name(file, prepared).tolist() == [0] + [1] * 9
    del devices["op1"], devices["op2"]
    file.write_text(json.dumps(devices))
    with pytest.raises(RivalError, match="it names 70% of the ops"):
        read_by_name(file, prepared)
    file.write_text(json.dumps({"op1": "/device:GPU:0"}))
    with pytest.raises(RivalError, match="on /device:GPU:0, which there is not"):
        read_by_name(file, prepared)


def test_a_checkout_that_is_none_is_said(tmp_path):
    with pytest.raises(RivalError, match="nothing is no checkout of tfplace"):
        place_by_other(tmp_path / "nothing", tmp_path / "m.pb", tmp_path, "workers:2", [])


@pytest.mark.parametrize("words", [["--noise=1"], ["--row=resnet"]])
def test_the_command_says_what_it_wants(words, capsys):
    with pytest.raises(SystemExit):
        command.main(words)
    assert "0 <= x < 1" in (said := capsys.readouterr().err) or "rnnlm" in said


@pytest.mark.examples
def test_a_whole_row(tmp_path):
    path = tmp_path / "rows.json"
    words = ["--row=tiny", "--noise=0.3", "--optimize=--budget_seconds=3", "--seconds=1"]
    command.main([*words, "--ranked=4", f"--folder={tmp_path}", f"--json={path}"])
    (row,) = json.loads(path.read_text())
    assert {*row["runs"], *row["failed"]} >= {WRITTEN, "single", "data parallel", "minimum cut"}
    assert row["prediction_error"] is not None
