"""`--shards=auto` where the unsplit step does not fit: shards one after another, in order."""

import json

import pytest

from graphs import zoo
from tfplace.cli import main

DEVICE = "/device:CPU:1"
"""Not of this machine, whose load would be in the prices that decide which search fits."""
FITS = 260_000
"""Bytes: 247,720 for four shards in order; more for fewer, for eight, and without an order."""


@pytest.fixture(scope="module")
def optimized(tmp_path_factory):
    """Runs `optimize --shards=auto` of a small net on one device with so much memory."""
    folder = tmp_path_factory.mktemp("in_turn")
    model = str(folder / "transformer.pb")
    zoo.write(zoo.build("transformer", "tiny", batch_size=32), model)

    def run(memory_bytes, *words):
        device = {"name": DEVICE, "type": "CPU", "memory": memory_bytes, "slots": 1}
        device |= {"cores": 2, "frequency_mhz": 2000}
        link = {"bytes_per_second": 1e9, "latency_seconds": 1e-5}
        cluster = {"name": "one", "communication": "duplex", "devices": [device], "links": []}
        path, output = folder / "one.json", folder / "out"
        path.write_text(json.dumps({**cluster, "default_link": link}))
        flags = ["--evaluator=simulate", "--verify=structure", "--verbosity=-1", "--max_trials=5"]
        flags += [f"--cluster={path}", "--memory_reserve=0", "--shards=auto", "--overwrite"]
        flags += ["--memory_plan=none", f"--output_dir={output}"]
        status = main(["optimize", model, *flags, *words])
        report = output / "assets.extra/tfplace/report.json"
        return status, json.loads(report.read_text()) if status == 0 else None

    return run


def test_the_fewest_shards_that_fit_are_found_with_their_order(optimized):
    status, report = optimized(FITS)
    assert status == 0
    assert report["split"]["shards"] == 4
    assert report["best"]["peak_bytes"][DEVICE] <= FITS
    assert report["order"]["edges"] > 0
    assert report["order"]["peak_bytes_without"][DEVICE] > FITS
    assert report["verdict"] == "kept_single"
    assert "only in this order" in report["verdict_sentence"]


def test_what_no_number_of_shards_can_hold_is_said_with_its_figures(optimized, capsys):
    assert optimized(220_000)[0] == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "8 shards one after another, in order, lack" in said and "--shards=" not in said


def test_without_an_order_no_shards_are_tried_for_memory(optimized, capsys):
    assert optimized(FITS, "--order=none")[0] == 3
    assert "--order=edges" in capsys.readouterr().err


def test_where_no_shards_in_turn_fit_ops_run_again(optimized):
    status, report = optimized(220_000, "--memory_plan=auto")
    assert status == 0
    assert report["best"]["peak_bytes"][DEVICE] <= 220_000
    assert report["memory_plan"]["ops_run_again"] > 0
