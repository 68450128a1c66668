"""report.json of a made-up run over a small prepared model: its fields are the contract's."""

import json

import numpy as np
import pytest

from graphs.problem import Infeasible, Measurement, Placement
from rewrite.verify import Verified
from tfplace.choosing.baselines import NAMES, Candidate
from tfplace.choosing.choose import Choice
from tfplace.choosing.data_parallel import DataParallel
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.outcomes import Decided
from tfplace.choosing.run_results import Comparison
from tfplace.measurement.timing import Timing
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.proving.proof import Proof
from tfplace.report.explaining.explained import explain
from tfplace.report.of_run import FinishedRun, report_of
from tfplace.search.trial import Trial
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.simulated import simulated

# What must stand in each object: section 4 of the contract.
FIELDS = {
    "": "schema_version tfplace_version seed algorithm evaluator model cluster costs baselines "
    "best lower_bound_seconds gap search measured verified verdict verdict_sentence split "
    "parallelism rounds",
    "model": "path kind num_ops num_groups trainable_bytes guessed",
    "cluster": "name communication devices figures taught forgotten",
    "costs": "source covered_ops",
    "best": "step_seconds peak_bytes ops_per_device transfers transfer_bytes",
    "search": "num_trials num_infeasible seconds trials_per_second best_trial history",
    "parallelism": "kind sentence true_share together_share devices shares",
    "measured": "given single placed speedup speedup_ci95 devices_used",
    "verified": "outputs_equal max_abs_diff compared structure run estimates",
}
GPU = "/device:GPU:0"


@pytest.fixture(scope="module")
def made(weight):
    """The report of a search that put everything on the first GPU, as JSON, and what it placed."""
    device_of_op = np.ones(weight.problem.num_ops, dtype=np.int32)
    placed = simulated(weight.problem, device_of_op)
    candidates = [Candidate(name, weight.given, Measurement(2.0, (1, 2, 3), "")) for name in NAMES]
    candidates[3] = Candidate("etf", weight.given, Infeasible("memory", "too large", (7, 8, 9)))
    chosen = Candidate("found by post", device_of_op, placed.outcome)
    best = Trial(2, 1.0, Placement(device_of_op), placed.outcome)
    result = SearchResult(
        best=best,
        best_stage="post",
        least_infeasible=None,
        num_trials=8,
        num_infeasible=2,
        seconds=4.0,
        history=[(0, 0.5, float("inf")), (2, 1.0, placed.outcome.step_seconds)],
        interrupted=False,
        notes=["it ended early"],
        stages=[("post", 8, 4.0)],
    )
    timings = {
        "given": Timing(3.0, 2.5, 3.5, 10),
        "single": "no memory",
        "placed": Timing(2, 2, 2, 10),
    }
    comparison = Comparison(timings, "given", 1.5, (1.25, 1.75), "tf.function", "faster", 0.1)
    report = report_of(
        OptimizeOptions(ProblemOptions("m.pb"), algorithm="post", seed=3, output_dir="out",
                        command="tfplace optimize m.pb"),
        FinishedRun(
            Decided(
                weight,
                Searched(candidates, [*candidates, chosen], result),
                Choice(chosen, "placed", "twice as fast"),
                comparison,
            ),
            Proof(
                Verified(True, 1e-7, ["loss"], []),
                placed.outcome.step_seconds / 2,
                {GPU: {"ops": 5, "seconds": 1.0}},
                False,
            ),
            DataParallel(9.0, True, "", {GPU: 5}, num_shards=2, num_transfers=3, transfer_bytes=60),
        ),
        explain(placed),
    )  # fmt: skip
    return json.loads(json.dumps(report.to_json(), allow_nan=False)), placed


@pytest.mark.parametrize("key", FIELDS)
def test_all_of_the_contracts_fields_are_there(made, key):
    report, _ = made
    assert set(FIELDS[key].split()) <= set(report[key] if key else report)


def test_the_reports_of_what_was_placed(made, weight):
    report, _ = made
    assert report["model"] == {
        "path": weight.source.path, "kind": "graph_def", "mode": "train",
        "step_origin": "the op train_op, and loss", "num_ops": 18, "num_groups": 8,
        "trainable_bytes": 24, "guessed": [], "matched": [], "units": [], "opened": [],
        "left_out_of_runs": {},
    }  # fmt: skip
    gib = 2**30
    assert report["cluster"]["devices"][1:] == [
        {"name": f"/device:GPU:{number}", "type": "GPU", "memory_bytes": 12 * gib}
        for number in range(2)
    ]


def test_the_reports_of_what_it_is_worth(made):
    report, placed = made
    peaks = dict(zip(placed.problem.device_names, (1, 2, 3), strict=True))
    runs = {
        "step_seconds": 2.0, "feasible": True, "reason": "", "peak_bytes": peaks, "num_devices": 2
    }  # fmt: skip
    assert list(report["baselines"]) == [*NAMES, "data_parallel"]
    assert report["baselines"]["given"] == report["baselines"]["local_search"] == runs
    assert report["baselines"]["etf"] == {
        "step_seconds": None,
        "feasible": False,
        "reason": "too large",
        "peak_bytes": dict(zip(placed.problem.device_names, (7, 8, 9), strict=True)),
        "num_devices": 0,
    }
    seconds = placed.outcome.step_seconds
    assert report["best"] == {
        "step_seconds": seconds,
        "peak_bytes": placed.peak_bytes,
        "ops_per_device": {"/device:CPU:0": 0, GPU: 18, "/device:GPU:1": 0},
        "busy_share": {"/device:CPU:0": 0.0, GPU: 1.0, "/device:GPU:1": 0.0},
        "transfers": 0,
        "transfer_bytes": 0,
    }
    assert report["lower_bound_seconds"] == seconds / 2 and report["gap"] == 1.0
    assert report["bound_sentence"] == ""  # 41 µs is less than what starting a step takes
    assert report["prediction_sentence"].startswith(
        "a step measured 2 s where 41.2 µs was predicted"
    )
    (row, both) = report["by_devices"]
    assert (row["max_devices"], row["step_seconds"], both["max_devices"]) == (1, seconds, 2)
    assert report["needed_sentence"] == "1 of 2 devices is enough: more gain less than 1 %"
    assert report["verified"] == {
        "outputs_equal": True, "max_abs_diff": 1e-7, "compared": ["loss"], "not_compared": [],
        "differing": [], "structure": False, "structure_compared": [],
        "run": "not run: nobody asked for it", "estimates": None, "split": None,
        "fails": "",
    }  # fmt: skip
    assert report["measured"] == {
        "given": {"median_seconds": 3.0, "p10": 2.5, "p90": 3.5, "runs": 10, "outliers": 0,
                  "drift": 0.0},
        "single": "no memory",
        "placed": {"median_seconds": 2, "p10": 2, "p90": 2, "runs": 10, "outliers": 0,
                   "drift": 0.0},
        "baseline": "given",
        "speedup": 1.5,
        "speedup_ci95": [1.25, 1.75],
        "through": "tf.function",
        "verdict": "faster",
        "background_share": 0.1,
        "noise": [],
        "tried": [],
        "same_as": {},
        "devices_used": {GPU: {"ops": 5, "seconds": 1.0}},
    }  # fmt: skip


def test_the_reports_of_how_it_was_searched(made):
    report, placed = made
    assert report["search"] == {
        "num_trials": 8, "num_infeasible": 2, "seconds": 4.0, "trials_per_second": 2.0,
        "best_trial": 2, "best_stage": "post",
        "history": [[0, 0.5, None], [2, 1.0, placed.outcome.step_seconds]],
        "stages": [{"name": "post", "num_trials": 8, "seconds": 4.0}],
        "notes": ["it ended early"], "interrupted": False, "beside": [],
    }  # fmt: skip
    keys = ("schema_version", "seed", "algorithm", "evaluator", "verdict", "verdict_sentence",
            "command", "output_dir")  # fmt: skip
    assert [report[key] for key in keys] == [
        1, 3, "post", "auto", "placed", "twice as fast", "tfplace optimize m.pb", "out",
    ]  # fmt: skip


def test_the_reports_of_what_to_do_about_it(made, weight):
    report, placed = made
    seconds = placed.outcome.step_seconds
    assert [row["sentence"] for row in report["waiting"]] == [
        "CPU:0 computes nothing",
        "GPU:0 computes 100 % of the step",
        "GPU:1 computes nothing",
    ]
    assert report["waiting"][0] == {
        "device": "/device:CPU:0",
        "computing_seconds": 0.0,
        "waits": [{"for": "nothing", "device": None, "seconds": seconds}],
        "sentence": "CPU:0 computes nothing",
    }
    assert report["split"] is None
    assert report["baselines"]["data_parallel"] == {
        "step_seconds": 9.0, "feasible": True, "reason": "", "peak_bytes": {GPU: 5},
        "num_shards": 2, "num_transfers": 3, "transfer_bytes": 60, "num_devices": 0,
    }  # fmt: skip
    assert report["advice"]["sentences"] == []  # nothing is gained
