"""The whole command with real runs on this host's CPU, and its result from made-up timings."""

import json

import numpy as np
import pytest

from graphs.errors import ClusterError
from graphs.placement import Infeasible
from tfplace.cli import main
from tfplace.fidelity import study as fidelity_module
from tfplace.fidelity.picture import scatter_png
from tfplace.fidelity.result import fidelity_to_json, print_fidelity
from tfplace.fidelity.study import FidelityConfig, Pair, Speedups, fidelity
from tfplace.measurement.run_measurement import Timings
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.report.text import console


@pytest.fixture(scope="module")
def on_workers(tiny_rnnlm):
    """A problem whose costs are analytic: nothing is started."""
    return prepare(ProblemOptions(model=tiny_rnnlm, cluster="workers:2"), trace=False)


def _timings(seconds):
    return Timings(np.full(3, seconds), "tf.function", {}, True, 0.01)


def _twice_as_predicted(found, placements, config, tell):
    """All steps take twice their makespan; the last can't run."""
    seconds = [fidelity_module.Simulator(found.problem).run(p)[0] for p in placements]
    results = [_timings(2.0 * s) for s in seconds[:-1]]
    return [*results, Infeasible("crash", "it died")]


def _pair(kind, name, predicted, measured):
    return Pair(kind, name, predicted, 0.0, measured, measured, measured, 3, 0, 0)


def test_the_fastest_optimised_placement_is_what_is_kept_not_the_best_prediction(
    on_workers, monkeypatch
):
    pairs = iter([
        _pair("single", "single", 4.0, 4.0),
        _pair("optimised", "annealing", 1.0, 3.0),
        _pair("structured", "stripes", 3.0, 1.0),
        _pair("optimised", "metis", 2.0, 2.0),
    ])  # fmt: skip
    monkeypatch.setattr(fidelity_module, "_pair", lambda *_: next(pairs))
    monkeypatch.setattr(
        fidelity_module, "measured_steps", lambda found, placements, *_: [_timings(1.0)] * 4
    )
    found = fidelity(on_workers, FidelityConfig(num_placements=4, num_traced=0))
    assert found.speedup == Speedups("annealing", 4.0, 4.0 / 3.0)
    assert found.kept_speedup == Speedups("metis", 2.0, 2.0)


def test_the_result_is_what_was_predicted_and_measured(on_workers, monkeypatch, capsys):
    monkeypatch.setattr(fidelity_module, "measured_steps", _twice_as_predicted)
    found = fidelity(on_workers, FidelityConfig(num_placements=6, num_traced=0))
    result = fidelity_to_json(found)
    assert (result["num_placements"], len(result["pairs"]), len(result["failed"])) == (5, 5, 1)
    assert result["spearman"] == pytest.approx(1.0)
    assert result["median_abs_relative_error"] == pytest.approx(0.5)
    assert result["p90_abs_relative_error"] == pytest.approx(0.5)
    assert all(pair["relative_error"] == pytest.approx(-0.5) for pair in result["pairs"])
    assert result["speedup"]["predicted"] == pytest.approx(result["speedup"]["measured"])
    assert result["speedup"]["predicted"] >= 1.0
    assert result["is_calibrated"] is False and result["background_share"] == 0.01
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    print_fidelity(found, console())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("agreement 5 placements: Spearman 1.000, |error| median 50.0%")
    assert scatter_png(found).startswith(b"\x89PNG")


def test_a_cluster_that_is_not_here_and_no_run_at_all_are_errors(
    on_workers, tiny_rnnlm, monkeypatch, capsys
):
    assert main(["fidelity", tiny_rnnlm, "--cluster=k80x2"]) == 2
    assert "not present on this machine" in capsys.readouterr().err
    dies = Infeasible("crash", "it died")
    monkeypatch.setattr(
        fidelity_module, "measured_steps", lambda f, placements, c, t: [dies] * len(placements)
    )
    with pytest.raises(ClusterError, match="none of 2 placements ran; the first: it died"):
        fidelity(on_workers, FidelityConfig(num_placements=2))


def test_the_command_measures_traces_and_writes(tiny_rnnlm, tmp_path, capsys):
    output, picture = tmp_path / "found.json", tmp_path / "found.png"
    flags = "--cluster=local --placements=2 --rounds=2 --trace=1 --format=json".split()
    words = ["fidelity", tiny_rnnlm, *flags, f"--output={output}", f"--picture={picture}"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert json.loads(output.read_text()) == found
    assert picture.read_bytes().startswith(b"\x89PNG")
    [pair] = found["pairs"]  # one device, so one placement
    assert (pair["kind"], pair["runs"], pair["transfers"]) == ("single", 2, 0)
    assert pair["measured_seconds"] > 0
    [step] = found["traced"]
    assert step["compute"]["traced_seconds"] > 0 and step["num_traced_transfers"] == 0
    assert {row["op_type"] for row in found["by_op_type"]} >= {"MatMul", "ConcatV2"}
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err
