"""The comparison with `tf.distribute`: figures by hand and, marked, a whole one that is tiny."""

import json

import numpy as np
import pytest

from tests.rival import __main__ as command
from tests.rival.models import MODELS
from tests.rival.result import Compared, Run
from tests.rival.table import result_file, text
from tests.rival.ways import MIRRORED, MULTI_WORKER, ONE, TFPLACE
from tests.tables.rewrite_docs import table

LOSSES = [2.0, 1.5]


def made_up(**ran):
    runs = {
        ONE: Run(LOSSES, np.full(6, 0.3)),
        TFPLACE: Run(LOSSES, np.full(6, 0.2)),
        MULTI_WORKER: Run([2.0, 1.5 + 1e-6], np.full(6, 0.25)),
    }
    failed = {MIRRORED: "its process ended"}
    return Compared("cnn", "a model", {**runs, **ran}, failed, "placed: it is faster", 0.3)


def test_ratios_are_of_medians():
    compared = made_up()
    assert compared.over(ONE, TFPLACE).ratio == pytest.approx(1.5)
    assert compared.over(MULTI_WORKER, TFPLACE).ratio == pytest.approx(1.25)
    assert compared.over(ONE, MIRRORED) is None


def test_what_computes_something_else_has_no_ratio():
    compared = made_up(**{TFPLACE: Run([2.0, 1.6], np.full(6, 0.01))})
    assert compared.over(ONE, TFPLACE) is None
    assert "does not compute the same" in text(compared)


def test_the_text_has_80_columns_and_the_json_all_figures():
    lines = text(made_up()).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1.50 (1.50-1.50)" in line for line in lines)
    assert any("30% of this machine" in line for line in lines)
    as_json = json.loads(json.dumps(made_up().as_json()))
    assert as_json["ways"][TFPLACE]["over_one_worker"]["ratio"] == pytest.approx(1.5)
    assert as_json["failed"] == {MIRRORED: "its process ended"}


def test_the_page_shows_what_was_measured():
    origin = {"command": "python x", "machine": "2 cores", "commit": "c", "transcribed": False}
    shown = table(result_file([made_up()], origin))
    assert "| cnn | 300 | 1.50 (1.50 to 1.50) |" in shown
    assert "did not run" in shown
    assert "up to 30%" in shown


def test_the_command_knows_its_models(capsys):
    with pytest.raises(SystemExit):
        command.main(["resnet"])
    assert "found resnet; wanted some of cnn" in capsys.readouterr().err


def test_a_step_learns_and_begins_alike_each_time():
    from tests.rival.steps import unsplit

    first, second = unsplit(MODELS["tiny"]), unsplit(MODELS["tiny"])
    losses = [first() for _ in range(3)]
    assert losses == [second() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.examples
def test_all_ways_compute_the_same(tmp_path):
    kept = tmp_path / "figures.json"
    flags = ["--optimize=--shards=2 --budget_seconds=3", "--seconds=1", "--warmup_steps=1"]
    command.main(["tiny", *flags, f"--folder={tmp_path}", f"--json={kept}"])
    (compared,) = json.loads(kept.read_text())
    assert not compared["failed"]
    assert {*compared["ways"]} == {ONE, TFPLACE, MULTI_WORKER, MIRRORED}
    assert all(way["loss_difference"] < 1e-5 for way in compared["ways"].values())
