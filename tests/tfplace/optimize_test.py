"""The whole way on a tiny graph: what is left behind, what the report says, what goes wrong."""

import html
import json
import math
from pathlib import Path

import pytest
import tensorflow as tf

import tfplace
from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from graphs.problem_file import read_problem
from tests.reference_simulator import reference_run
from tfplace.choosing.baselines import NAMES
from tfplace.cli import main
from tfplace.progress import PHASES


@pytest.fixture(scope="module")
def placed(tiny_rnnlm, slow_cpu_cluster, tmp_path_factory):
    """(output directory, printed report, dumped problem) of one run of the command."""
    folder = tmp_path_factory.mktemp("placed")
    out, dump = folder / "out", folder / "problem.npz"
    status = main(
        [
            "optimize",
            tiny_rnnlm,
            f"--cluster={slow_cpu_cluster}",
            "--algorithm=local_search",
            "--max_trials=400",
            "--evaluator=simulate",
            f"--output_dir={out}",
            f"--dump_problem={dump}",
            f"--logdir={folder / 'logs'}",
            "--verbosity=-1",
        ]
    )
    assert status == 0
    return out, json.loads((out / "assets.extra/tfplace/report.json").read_text()), dump


def test_the_report_has_what_the_contract_lists(placed):
    _, report, _ = placed
    assert report["schema_version"] == 1
    assert set(report["baselines"]) == {*NAMES, "data_parallel"}
    best = report["best"]
    baselines = [b["step_seconds"] for b in report["baselines"].values() if b["feasible"]]
    assert best["step_seconds"] <= min(baselines) * 1.01  # within 1 % is a tie
    assert sum(best["ops_per_device"].values()) == report["model"]["num_ops"]
    assert report["verdict"] == "placed"
    assert 0 < report["lower_bound_seconds"] <= best["step_seconds"]
    assert math.isclose(
        report["gap"], best["step_seconds"] / report["lower_bound_seconds"] - 1, rel_tol=1e-9
    )
    assert report["verified"]["outputs_equal"] and report["verified"]["compared"]
    phases = report["seconds_by_phase"]
    assert tuple(phases) == PHASES
    assert min(phases[name] for name in ("read", "price", "search", "write", "prove")) > 0
    assert phases["measure"] < phases["search"]
    assert report["measured"] is None
    assert report["search"]["num_trials"] == 400
    trials = [row[0] for row in report["search"]["history"]]
    assert trials == sorted(trials)


def test_tensorboard_gets_scalars_hyper_parameters_and_the_placed_graph(placed):
    out, report, _ = placed
    (run,) = (out.parent / "logs").iterdir()
    assert run.name.startswith("rnnlm-two_equal-local_search-seed0-")
    (file,) = run.iterdir()
    tags, graphs = set(), []
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        tags |= {value.tag for value in event.summary.value}
        if event.graph_def:
            graphs.append(tf.compat.v1.GraphDef.FromString(event.graph_def))
    assert {"search/best_step_seconds", "search/trials_per_second", "result/gap"} <= tags
    assert {"_hparams_/session_start_info", "_hparams_/session_end_info"} <= tags
    (graph,) = graphs
    counts = dict.fromkeys(report["best"]["ops_per_device"], 0)
    for node in graph.node:
        counts[node.device] += 1
    assert counts == report["best"]["ops_per_device"]
    assert not any("value" in node.attr for node in graph.node)


def test_an_independent_simulator_agrees_with_the_dumped_problem(placed):
    _, report, dump = placed
    problem, placement = read_problem(str(dump))
    makespan, peaks = reference_run(problem, placement.tolist())
    assert math.isclose(makespan, report["best"]["step_seconds"], rel_tol=1e-9)
    assert peaks == list(report["best"]["peak_bytes"].values())


def test_the_files_say_what_the_model_says(placed):
    out, report, _ = placed
    extra = out / "assets.extra/tfplace"
    names = {"report.json", "report.html", "placement.json", "timeline.json", "graph.pb"}
    assert {path.name for path in extra.iterdir()} == names
    placement = json.loads((extra / "placement.json").read_text())
    graph_def = tf.compat.v1.GraphDef.FromString((extra / "graph.pb").read_bytes())
    written = {node.name: node.device for node in graph_def.node if node.device}
    assert written == placement
    assert len(set(placement.values())) > 1
    assert all(device.startswith("/device:") for device in placement.values())
    assert html.escape(report["verdict_sentence"]) in (extra / "report.html").read_text()
    assert report["command"].startswith("tfplace optimize ")
    assert "--max_trials=400" in report["command"]


def test_the_emitted_model_loads_and_trains(placed):
    out, _, _ = placed
    model = tfplace.load(str(out))
    step = model.signatures["train_step"]
    feeds = {
        name: tf.zeros(spec.shape, spec.dtype)
        for name, spec in step.structured_input_signature[1].items()
    }
    losses = [float(step(**feeds)["loss"]) for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]


def test_one_device_is_kept_and_still_emitted(tiny_rnnlm, tmp_path, capsys):
    out = tmp_path / "kept"
    assert main(["optimize", tiny_rnnlm, f"--output_dir={out}", "--format=json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "kept_given" and report["verified"]["outputs_equal"]
    assert (out / "saved_model.pb").exists()
    assert report == json.loads((out / "assets.extra/tfplace/report.json").read_text())


def test_a_pin_is_kept(tiny_rnnlm, tmp_path, slow_cpu_cluster):
    out = tmp_path / "pinned"
    words = ["optimize", tiny_rnnlm, f"--cluster={slow_cpu_cluster}", f"--output_dir={out}"]
    words += ["--algorithm=random", "--max_trials=3", "--pin=MatMul=GPU:1", "--verbosity=-1"]
    assert main(words) == 0
    placement = json.loads((out / "assets.extra/tfplace/placement.json").read_text())
    assert {d for name, d in placement.items() if "MatMul" in name} == {"/device:GPU:1"}
    report = json.loads((out / "assets.extra/tfplace/report.json").read_text())
    (sentence,) = report["model"]["matched"]
    num_ops = sum("MatMul" in name for name in placement)
    assert sentence.startswith(f"--pin=MatMul=GPU:1 matches {num_ops} ops, the first is ")


BAD_CLUSTER = {"name": "x", "communication": "duplex", "devices": [{"nam": "/device:CPU:0"}]}


@pytest.mark.parametrize(
    ("make", "flags", "status", "found"),
    [
        (None, [], 2, "no such"),
        (b"", [], 2, "empty"),
        (bytes(range(256)) * 20, [], 2, ""),
        ("tiny", ["--fetch=nothing"], 2, "nothing"),
        ("tiny", ["--cluster=k80x3"], 2, "did you mean"),
        ("tiny", ["--cluster=BAD"], 2, "nam"),
        ("tiny", ["--feed=/nowhere.npz"], 2, "nowhere"),
        ("tiny", ["--pin=nothing_matches_this=CPU:0"], 1, "no op's name matches"),
        ("tiny", ["--pin=loss=TPU:0"], 1, "no device 'TPU:0'; it has"),
        ("tiny", ["--memory_reserve=2"], 1, "fraction"),
        ("tiny", ["--cluster=k80x2", "--evaluator=measure"], 2, "not present"),
        ("tiny", ["--input_shape=x"], 1, "NAME=2,3"),
        ("tiny", ["--shards=auto", "--batch_axis=nothing=0"], 1, "no input 'nothing'"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    make, flags, status, found, tiny_rnnlm, tmp_path, capsys
):
    model = tmp_path / "model.pb"
    if make == "tiny":
        model.write_bytes(Path(tiny_rnnlm).read_bytes())
    elif make is not None:
        model.write_bytes(make)
    bad = tmp_path / "cluster.json"
    bad.write_text(json.dumps(BAD_CLUSTER))
    before = sorted(tmp_path.iterdir())
    words = [flag.replace("BAD", str(bad)) for flag in flags]
    assert main(["optimize", str(model), "--verbosity=-1", *words]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith("tfplace: error: ") and captured.err.count("\n") == 1
    assert found in captured.err and captured.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_graph_that_fits_nowhere_ends_with_status_3(tiny_rnnlm, tmp_path, capsys):
    cluster = cluster_to_json(named("k80x2"))
    for device in cluster["devices"]:
        device["memory"] = 1000
    path = tmp_path / "small.json"
    path.write_text(json.dumps(cluster))
    words = ["optimize", tiny_rnnlm, f"--cluster={path}", f"--output_dir={tmp_path / 'out'}"]
    assert main([*words, "--algorithm=random", "--max_trials=5", "--verbosity=-1"]) == 3
    assert "lacks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_existing_output_is_kept(tiny_rnnlm, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    assert main(["optimize", tiny_rnnlm, f"--output_dir={out}"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert list(out.iterdir()) == []
