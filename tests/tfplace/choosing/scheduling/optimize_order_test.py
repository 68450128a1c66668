"""An order all the way: found, simulated, dumped, written, proven, reported, simulated again."""

import json
from pathlib import Path

import pytest

from graphs.graph_view import GraphView
from graphs.loading.sniff import sniff
from graphs.problem_file import read_problem
from rewrite.order.order_edges import order_of
from tests.reference_simulator import reference_run
from tfplace.cli import main

SHARD_1 = "MatMul.*shard_1"
PINS = [f"--pin={SHARD_1}=/device:GPU:1", f"--pin=^(?!.*{SHARD_1})=/device:GPU:0"]


@pytest.fixture(scope="module")
def slow_links(slow_cpu_cluster, tmp_path_factory):
    """The same with links on which it matters what is sent first."""
    value = json.loads(Path(slow_cpu_cluster).read_text())
    value["default_link"]["bytes_per_second"] = 1e6
    path = tmp_path_factory.mktemp("clusters") / "slow_links.json"
    path.write_text(json.dumps(value))
    return str(path)


@pytest.fixture(scope="module")
def placed(tiny_rnnlm, slow_links, tmp_path_factory):
    """(the folder, the report, what is printed) of one run."""
    folder = tmp_path_factory.mktemp("ordered")
    flags = ["--algorithm=single", "--evaluator=simulate", "--max_trials=1", "--verify=structure"]
    flags += [f"--cluster={slow_links}", "--shards=2", "--order=edges", "--verbosity=-1"]
    files = [f"--output_dir={folder / 'out'}", f"--dump_problem={folder / 'problem.npz'}"]
    assert main(["optimize", tiny_rnnlm, *flags, *PINS, *files]) == 0
    report = folder / "out/assets.extra/tfplace/report.json"
    return folder, json.loads(report.read_text())


def test_it_is_faster_and_in_the_report(placed):
    _, report = placed
    order, names = report["order"], [d["name"] for d in report["cluster"]["devices"]]
    assert set(order) == {"edges", "step_seconds_without", "peak_bytes_without"}
    assert order["edges"] > 0
    assert report["best"]["step_seconds"] < order["step_seconds_without"]
    assert list(order["peak_bytes_without"]) == names


def test_an_independent_simulator_agrees_on_the_dumped_problem(placed):
    folder, report = placed
    problem, placement = read_problem(str(folder / "problem.npz"))
    makespan, peaks = reference_run(problem, placement.tolist())
    assert makespan == pytest.approx(report["best"]["step_seconds"], rel=1e-9)
    assert peaks == list(report["best"]["peak_bytes"].values())


def test_the_edges_are_in_the_emitted_graph(placed):
    folder, report = placed
    graph_def = sniff(folder / "out").proto.meta_graphs[0].graph_def
    nodes = {node.name: node for node in graph_def.node}
    edges = order_of(graph_def)
    assert len(edges) == report["order"]["edges"]
    assert all(nodes[node].device == nodes[first].device != "" for _, node, first in edges)


def test_the_unsplit_step_waits_for_none_of_the_split_one(placed):
    folder, _ = placed
    meta_graph = sniff(folder / "out").proto.meta_graphs[0]
    whole = meta_graph.signature_def["train_step_whole"]
    run = GraphView(meta_graph.graph_def).ancestors(info.name for info in whole.outputs.values())
    assert any(name.startswith("whole/") for name in run)
    assert not [name for name in run if "shard_" in name]
    late = {node for _, node, _ in order_of(meta_graph.graph_def)}
    assert any(
        node.op == "ReadVariableOp" for node in meta_graph.graph_def.node if node.name in late
    )
    assert late.isdisjoint(run)


def test_the_written_placement_is_simulated_with_its_order(placed, tiny_rnnlm, slow_links, capsys):
    folder, report = placed
    placement = folder / "out/assets.extra/tfplace/placement.json"
    flags = [f"--placement={placement}", f"--cluster={slow_links}", "--shards=2"]
    assert main(["simulate", tiny_rnnlm, *flags, "--order=edges", "--format=json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["step_seconds"] == pytest.approx(report["best"]["step_seconds"], rel=1e-9)
    assert result["order"] == report["order"]
    assert main(["simulate", tiny_rnnlm, *flags, "--order=edges", "--verbosity=-1"]) == 0
    assert "control edges within devices" in " ".join(capsys.readouterr().out.split())


def test_without_the_flag_nothing_changes(placed, tiny_rnnlm, slow_links, capsys):
    folder, report = placed
    placement = folder / "out/assets.extra/tfplace/placement.json"
    flags = [f"--placement={placement}", f"--cluster={slow_links}", "--shards=2"]
    assert main(["simulate", tiny_rnnlm, *flags, "--format=json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["order"] is None
    without = report["order"]["step_seconds_without"]
    assert result["step_seconds"] == pytest.approx(without, rel=1e-9)
