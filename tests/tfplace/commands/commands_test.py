"""The smaller commands, in process: what they print and write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tfplace.cli import main

ROOT = Path(__file__).parents[3]


def printed_json(capsys):
    return json.loads(capsys.readouterr().out)


def test_inspect_counts_what_is_there(tiny_rnnlm, capsys):
    assert main(["inspect", tiny_rnnlm, "--cluster=k80x2", "--format=json"]) == 0
    found = printed_json(capsys)
    assert found["kind"] == "graph_def" and found["mode"] == "train"
    assert sum(row["num_ops"] for row in found["op_types"]) == found["num_ops"]
    assert found["devices_asked"] == {"": found["num_ops"]}
    assert found["num_colocation_groups"] > 0 and found["flops"] > 0
    assert main(["inspect", tiny_rnnlm]) == 0
    printed = capsys.readouterr().out
    assert "MatMul" in printed and max(map(len, printed.splitlines())) <= 80


def test_simulate_predicts_a_placement_and_writes_its_timeline(tiny_rnnlm, tmp_path, capsys):
    timeline = tmp_path / "timeline.json"
    words = ["simulate", tiny_rnnlm, "--cluster=k80x2", "--format=json"]
    assert main([*words, f"--timeline={timeline}", "--repeat=3"]) == 0
    given = printed_json(capsys)
    assert given["feasible"] and given["transfers"] == 0 and given["placements_per_second"] > 0
    assert json.loads(timeline.read_text())["traceEvents"]
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"loss": "/device:CPU:0"}))
    assert main([*words, f"--placement={placement}"]) == 0
    moved = printed_json(capsys)
    assert moved["ops_per_device"]["/device:CPU:0"] == given["ops_per_device"]["/device:CPU:0"] + 1
    assert moved["transfers"] > 0


@pytest.mark.parametrize("ending", ["", ".pb", ".pbtxt", ".meta"])
def test_graph_writes_every_format_and_never_over_what_is_there(ending, tmp_path, capsys):
    output = tmp_path / f"cifar10{ending}"
    words = ["graph", "cifar10", "--size=tiny", f"--output={output}", "--format=json"]
    assert main(words) == 0
    assert printed_json(capsys)["num_parameters"] > 0
    assert output.exists()
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["graph", "cifar11", "--output=x.pb"], "cifar10"),
        (["graph", "cifar10"], "--output is missing"),
        (["graph", "cifar10", "--num_layers=3", "--output=x.pb"], "num_layers"),
        (["bench", "--output=x.txt"], "FILE.json"),
        (["bench", "--output=x.json", "--seeds=a"], "whole number"),
        (["bench", "--output=x.json", "--order=edges"], "--shards=auto"),
        (["bench", "--output=x.json", "--algorithms=rondom"], "--algorithms=rondom"),
        (["bench", "--output=x.json", "--models=nmt,nope"], "nope: there is no such benchmark gr"),
        (["bench", "--output=x.json", "--models=nope"], "wanted rnnlm, nmt, inception_v3, "),
        (["bench", "--output=x.json", "--models=nmt:layers=4"], "did you mean 'num_layers'"),
    ],
)
def test_usage_errors(words, found, capsys):
    assert main(words) == 1
    assert found in capsys.readouterr().err


@pytest.mark.parametrize("command", [["train", "--family=rnnlm"], ["bench", "--models=rnnlm"]])
def test_where_nothing_can_be_written_no_work_begins(command, capsys):
    output = "/proc/x.npz" if command[0] == "train" else "/proc/x.json"
    assert main([*command, f"--output={output}"]) == 2
    assert "the folder /proc can't be written to" in capsys.readouterr().err


def test_a_new_bench_replaces_no_file_of_somebody_elses(tmp_path, capsys):
    notes = tmp_path / "bench.md"
    notes.write_text("mine")
    assert main(["bench", f"--output={tmp_path / 'bench.json'}", "--models=rnnlm:size=tiny"]) == 2
    assert f"writing {notes}: it exists already" in capsys.readouterr().err


def test_a_bench_on_no_cluster_ends_at_once(tmp_path, capsys):
    output = tmp_path / "x.json"
    assert main(["bench", f"--output={output}", "--clusters=k80x2,k80x3"]) == 2
    captured = capsys.readouterr()
    assert "'k80x3': there is none" in captured.err and captured.err.count("\n") == 1
    assert not output.exists()


def test_devices_lists_clusters(capsys):
    assert main(["devices", "--cluster=k80x4", "--format=json"]) == 0
    found = printed_json(capsys)
    assert len(found["cluster"]["devices"]) == 5 and "v100x8" in found["named_clusters"]
    assert main(["devices", "--cluster=k80x4"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("by class") == 4  # a GPU's kernels have no one efficiency


def test_devices_names_those_of_tasks_whole(tmp_path, capsys):
    names = [
        f"/job:worker/task:{task}/device:{kind}:0" for task in (0, 1) for kind in ("CPU", "GPU")
    ]
    cluster = {
        "name": "tasks",
        "devices": [{"name": name, "memory": "1GiB"} for name in names],
        "default_link": {"bytes_per_second": 1e9, "latency_seconds": 0},
    }
    (tmp_path / "tasks.json").write_text(json.dumps(cluster))
    assert main(["devices", f"--cluster={tmp_path / 'tasks.json'}"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert [name for name in names if name not in printed] == []


def test_bench_goes_on_where_it_was_and_one_failing_cell_does_not_end_it(tmp_path, capsys):
    output = tmp_path / "bench.json"
    words = ["bench", "--models=cifar10:size=tiny,/nowhere.pb", "--algorithms=random,etf"]
    words += ["--max_trials=5", "--budget_seconds=20", f"--output={output}", "--format=json"]
    assert main(words) == 2
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert printed.err.splitlines()[-1] == (
        f"tfplace: error: running a bench: 2 of 4 cells failed; {output} says why; the same "
        "command tries them again"
    )
    assert [(r["algorithm"], r["trials"], r["feasible"]) for r in rows[:2]] == [
        ("random", 5, True),
        ("etf", 1, True),
    ]
    assert all("nowhere" in row["error"] for row in rows[2:])
    assert {path.name for path in tmp_path.iterdir()} == {f"bench.{e}" for e in
                                                          ("json", "csv", "md", "png")}  # fmt: skip
    before = output.read_text()
    assert main(words) == 2
    assert output.read_text() == before


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["optimize", "nowhere.pb"], "there is no such file"),
        (["inspect", "nowhere.pb"], "there is no such file"),
        (["simulate", "{model}", "--placement=no.json"], "--placement=no.json: there is no such"),
        (["optimize", "{model}", "--feed=no.npz"], "--feed=no.npz: there is no such file"),
        (["check", "{model}", "--cluster=no.json"], "no.json"),
        (["optimize", "{model}", "--output_dir={model}"], "the model that is read"),
        (["optimize", "{model}", "--output_dir=/proc/x"], "can't be written to"),
    ],
)
def test_files_are_looked_for_before_tensorflow_is_imported(words, found, tiny_rnnlm):
    code = (
        "import sys; from tfplace.cli import main; status = main(sys.argv[1:]);"
        "sys.exit(status if 'tensorflow' not in sys.modules else 99)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(word.format(model=tiny_rnnlm) for word in words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and found in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("placement", "words", "status", "obstacle"),
    [
        ({}, ["--memory_reserve=0.9999999999"], 3, "memory"),
        ({"sum": "GPU:0"}, ["--pin=^sum$=GPU:1"], 4, "pin"),
        ({"text": "GPU:0"}, [], 2, "no_kernel"),
    ],
)
def test_simulate_ends_with_a_status_that_says_why_a_placement_can_not_run(
    placement, words, status, obstacle, tmp_path, capsys
):
    with tf.Graph().as_default() as graph:
        numbers = tf.compat.v1.placeholder(tf.float32, [4], "x")
        tf.strings.as_string(tf.add(numbers, numbers, name="sum"), name="text")
    model, file = tmp_path / "model.pb", tmp_path / "placement.json"
    model.write_bytes(graph.as_graph_def().SerializeToString())
    file.write_text(json.dumps(placement))
    given = ["simulate", str(model), "--cluster=k80x2", "--format=json", f"--placement={file}"]
    assert main([*given, *words]) == status
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["feasible"], found["obstacle"]) == (False, obstacle)
    assert printed.err.count("\n") == 1 and found["reason"].split()[0] in printed.err


def test_as_a_process_it_keeps_tensorflows_lines_off_the_terminal(tiny_rnnlm):
    done = subprocess.run(
        [sys.executable, "-m", "tfplace", "simulate", tiny_rnnlm, "--cluster=k80x2"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == "tfplace: starting TensorFlow\n"
    assert done.stdout.startswith("predicted ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("simulate model.pb --dump_problem=x --timeline=x", "--dump_problem is the same file"),
        ("fidelity model.pb --output=x --picture=./x", "--output is the same file"),
        ("optimize model.pb --output_dir=x --logdir=x/logs", "appears whole at the end"),
    ],
)
def test_outputs_that_can_not_both_be_are_refused_before_any_work(
    line, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("model.pb").write_text("no model")
    assert main([*line.split(), "--cluster=k80x2", "--verbosity=-1"]) == 2
    assert said in capsys.readouterr().err
    assert os.listdir() == ["model.pb"]


@pytest.mark.parametrize(
    "line",
    [
        "solve in.npz --placement=in.npz --overwrite",
        "solve in.npz --placement=in.json --overwrite",  # a link to in.npz
        "calibrate --cluster=box.json --output=box.json --overwrite",
        "fidelity model.pb --output=model.pb --overwrite",
        "fidelity model.pb --cluster=box.json --output=box.json --overwrite",
        "fidelity model.pb --feed=in.npz --picture=in.npz --overwrite",
        "bench --clusters=k80x2,box.json --output=box.json --overwrite",
        "bench --models=rnnlm,model.png --output=model.json",
        "batch placed/summary.md --output_dir=placed",
        "optimize model.pb --feed=placed/feed.npz --output_dir=placed --overwrite",
        "optimize model.pb --cluster=placed/box.json --output_dir=placed --overwrite",
        "optimize model.pb --policy=in.npz --dump_problem=in.npz",
    ],
)
def test_nothing_that_a_command_reads_is_overwritten(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkdir("placed")
    for name in ("in.npz", "box.json", "model.pb", "model.png", "placed/saved_model.pb"):
        Path(name).write_text("precious")
    for name in ("placed/summary.md", "placed/feed.npz", "placed/box.json"):
        Path(name).write_text("precious")
    Path("in.json").symlink_to("in.npz")
    assert main(line.split()) == 2
    assert " is read, and would be lost; choose another place\n" in capsys.readouterr().err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 9 and {path.read_text() for path in files} == {"precious"}
