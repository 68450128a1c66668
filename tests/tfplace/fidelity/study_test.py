"""The study from made-up timings, its result as JSON, text and picture; once with real runs."""

import dataclasses
import io
import json

import matplotlib.image
import numpy as np
import pytest

from graphs.errors import ClusterError
from graphs.problem import Infeasible
from tests.builders import with_executor
from tfplace.cli import main
from tfplace.fidelity.error_sources import Amount, OpTypeError, TracedStep
from tfplace.fidelity.result import fidelity_to_json, print_fidelity, scatter_png
from tfplace.fidelity.study import (
    Fidelity,
    FidelityConfig,
    Pair,
    Speedups,
    agreement,
    best_speedup,
    kept_speedup,
    study_fidelity,
)
from tfplace.measurement.run_measurement import Timings
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.report.text import console
from tfplace.simulation.simulator import Simulator


@pytest.fixture(scope="module")
def on_workers(tiny_rnnlm):
    """A problem whose costs are analytic: nothing is started."""
    return prepare(ProblemOptions(model=tiny_rnnlm, cluster="workers:2"), trace=False)


def _timings(*seconds, background_share=0.01):
    return Timings(np.array(seconds), "tf.function", {}, True, background_share)


def _pair(kind, name, predicted, measured, p10=None, p90=None):
    return Pair(kind, name, predicted, 0.25, measured, p10 or measured, p90 or measured, 7, 1200, 0)


PAIRS = [
    _pair("single", "single", 4.0, 4.0, 3.5, 5.0),
    _pair("optimised", "annealing", 1.0, 3.0),
    _pair("structured", "stripes", 3.0, 1.0),
    _pair("optimised", "metis", 2.0, 2.0),
]


def test_the_fastest_optimised_placement_is_what_is_kept_not_the_best_prediction():
    assert best_speedup(PAIRS) == Speedups("annealing", 4.0, 4.0 / 3.0)
    assert kept_speedup(PAIRS) == Speedups("metis", 2.0, 2.0)


def test_without_a_single_device_or_an_optimised_placement_there_is_no_speed_up():
    assert best_speedup(PAIRS[1:]) is None and kept_speedup(PAIRS[1:]) is None
    assert kept_speedup([PAIRS[0], PAIRS[2]]) is None


def test_the_result_is_what_was_predicted_and_measured(on_workers):
    def twice_as_predicted(placements):
        """All steps take twice their makespan, once less and once more; the last can't run."""
        makespans = [Simulator(on_workers.problem).run(p)[0] for p in placements]
        results = [
            _timings(m, 2.0 * m, 8.0 * m, background_share=share)
            for m, share in zip(makespans[:-1], (0.0, None, 0.3, 0.1, 0.2), strict=True)
        ]
        return [*results, Infeasible("crash", "it died")]

    told = []
    study = study_fidelity(
        on_workers, FidelityConfig(num_placements=6, num_traced=0), told.append, twice_as_predicted
    )
    assert told == ["choosing 6 placements"]
    assert (study.model, study.cluster) == (on_workers.source.path, "workers:2")
    assert len(study.pairs) == 5 and list(study.failed.values()) == ["it died"]
    for pair in study.pairs:
        m = pair.predicted_seconds
        assert (pair.measured_seconds, pair.runs, pair.dispatch_seconds) == (2.0 * m, 3, 0.0)
        assert (pair.p10, pair.p90) == (pytest.approx(1.2 * m), pytest.approx(6.8 * m))
        assert pair.relative_error == -0.5
    assert study.agreement.spearman == pytest.approx(1.0)
    assert study.agreement.median_abs_relative_error == pytest.approx(0.5)
    assert study.speedup.predicted == study.speedup.measured >= 1.0
    assert study.background_share == 0.3
    assert (study.is_calibrated, study.traced) == (False, [])


def test_what_is_judged_is_what_the_search_ranks_by(on_workers):
    """With several orders that is their mean, not the first order's schedule."""
    rng = np.random.default_rng(0)
    turns = [rng.permutation(on_workers.problem.num_ops).tolist() for _ in range(2)]
    problem = with_executor(on_workers.problem, turn=turns)
    prepared = dataclasses.replace(on_workers, problem=problem)
    placements = []

    def measure(chosen):
        placements.extend(chosen)
        return [_timings(1.0)] * len(chosen)

    study = study_fidelity(
        prepared, FidelityConfig(num_placements=6, num_traced=0), measure=measure
    )
    simulator = Simulator(problem)
    predicted = [pair.predicted_seconds for pair in study.pairs]
    assert predicted == [simulator.run(placement)[0] for placement in placements]
    assert predicted != [simulator.schedule(placement).makespan for placement in placements]


def test_a_cluster_that_is_not_here_and_no_run_at_all_are_errors(on_workers, tiny_rnnlm, capsys):
    assert main(["fidelity", tiny_rnnlm, "--cluster=k80x2"]) == 2
    assert "not present on this machine" in capsys.readouterr().err
    with pytest.raises(ClusterError, match="none of 2 placements ran; the first: it died"):
        study_fidelity(
            on_workers,
            FidelityConfig(num_placements=2),
            measure=lambda placements: [Infeasible("crash", "it died")] * len(placements),
        )


STUDY = Fidelity(
    model="nets/model.pb",
    cluster="workers:2",
    communication="duplex",
    is_calibrated=False,
    agreement=dataclasses.replace(
        agreement([4.0, 1.0, 3.0, 2.0], [4.0, 3.0, 1.0, 2.0]), reliability=0.9
    ),
    pairs=PAIRS,
    failed={"8 random groups": "it died"},
    speedup=best_speedup(PAIRS),
    kept_speedup=kept_speedup(PAIRS),
    traced=[
        TracedStep(
            "stripes", Amount(2.0, 1.5), Amount(0.5, 0.25), 3, 4, Amount(4.0, 0.5), np.zeros(2)
        )
    ],
    by_op_type=[OpTypeError("MatMul", 1500, 2.0, 0.5), OpTypeError("Add", 1, 0.0, 0.001)],
    background_share=0.3,
    corrected={"link_latency": (3.0, 2.0, 4.0)},
)


def test_the_result_as_json():
    assert json.loads(json.dumps(fidelity_to_json(STUDY), allow_nan=False)) == {
        "model": "nets/model.pb",
        "cluster": "workers:2",
        "communication": "duplex",
        "is_calibrated": False,
        "figures": "assumed",
        "num_placements": 4,
        "spearman": pytest.approx(0.2),
        "reliability": 0.9,
        "corrected": {"link_latency": [3.0, 2.0, 4.0]},
        "median_abs_relative_error": pytest.approx(1 / 3),
        "p90_abs_relative_error": pytest.approx(1.6),
        "speedup": {"placement": "annealing", "predicted": 4.0, "measured": 4.0 / 3.0},
        "kept_speedup": {"placement": "metis", "predicted": 2.0, "measured": 2.0},
        "pairs": [
            {
                "kind": pair.kind, "name": pair.name, "predicted_seconds": pair.predicted_seconds,
                "dispatch_seconds": 0.25, "measured_seconds": pair.measured_seconds,
                "p10": pair.p10, "p90": pair.p90, "runs": 7, "transfers": 1200,
                "transfer_bytes": 0, "relative_error": error,
            }
            for pair, error in zip(PAIRS, (0.0, 1.0 / 3.0 - 1.0, 2.0, 0.0), strict=True)
        ],
        "failed": {"8 random groups": "it died"},
        "traced": [
            {
                "name": "stripes",
                "compute": {"predicted_seconds": 2.0, "traced_seconds": 1.5},
                "transfer": {"predicted_seconds": 0.5, "traced_seconds": 0.25},
                "num_transfers": 3,
                "num_traced_transfers": 4,
                "dispatch": {"predicted_seconds": 4.0, "traced_seconds": 0.5},
            }
        ],
        "by_op_type": [
            {"op_type": "MatMul", "num_ops": 1500, "predicted_seconds": 2.0, "traced_seconds": 0.5},
            {"op_type": "Add", "num_ops": 1, "predicted_seconds": 0.0, "traced_seconds": 0.001},
        ],
        "background_share": 0.3,
    }  # fmt: skip


def test_the_result_as_text(capsys):
    print_fidelity(STUDY, console())
    expected = """\
model     nets/model.pb
cluster   workers:2 (duplex channels)
machine   devices and links as assumed, nothing of them was measured, corrected
          by a first round of real runs
taught    a transfer's latency is 3 times as long as taken (2 to 4)
placement predicted measured   error p10-p90 moves
stripes         3 s      1 s +200.0%    0.0% 1,200
metis           2 s      2 s   +0.0%    0.0% 1,200
annealing       1 s      3 s  -66.7%    0.0% 1,200
single          4 s      4 s   +0.0%   37.5% 1,200
failed    8 random groups: it died
taken apart         ops  between ops          moving
stripes     2 s / 1.5 s 4 s / 500 ms 500 ms / 250 ms
op type   ops predicted traced  error
MatMul  1,500       2 s 500 ms +1.5 s
Add         1      0 µs   1 ms  -1 ms
noise     others used 30 % of this machine meanwhile
speed-up  4.000x predicted, 1.333x measured: best prediction over best device
kept      2.000x predicted, 2.000x measured: fastest optimised one, as optimize
          keeps it
agreement 4 placements: Spearman 0.200 (reliability of the measured ranks
          0.900), |error| median 33.3%, p90 160.0%
"""
    assert capsys.readouterr().out == expected


def test_the_picture_is_drawn():
    image = matplotlib.image.imread(io.BytesIO(scatter_png(STUDY)))
    assert image.shape == (768, 768, 4)
    colours = {tuple(np.rint(255 * pixel).astype(int)) for row in image for pixel in row[:, :3]}
    # Of the single device, of optimised and of structured placements; there are no random ones.
    assert {(0x44, 0x44, 0x44), (0, 0x72, 0xB2), (0xE6, 0x9F, 0)} <= colours
    assert (0, 0x9E, 0x73) not in colours


def test_the_command_measures_traces_and_writes(tiny_rnnlm, tmp_path, capsys):
    output, picture = tmp_path / "found.json", tmp_path / "found.png"
    flags = "--cluster=local --placements=2 --rounds=2 --trace=1 --format=json".split()
    words = ["fidelity", tiny_rnnlm, *flags, f"--output={output}", f"--picture={picture}"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert json.loads(output.read_text()) == result
    assert picture.read_bytes().startswith(b"\x89PNG")
    [pair] = result["pairs"]  # one device, so one placement
    assert (pair["kind"], pair["runs"], pair["transfers"]) == ("single", 2, 0)
    assert pair["measured_seconds"] > 0
    [step] = result["traced"]
    assert step["compute"]["traced_seconds"] > 0 and step["num_traced_transfers"] == 0
    assert {row["op_type"] for row in result["by_op_type"]} >= {"MatMul", "ConcatV2"}
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err
