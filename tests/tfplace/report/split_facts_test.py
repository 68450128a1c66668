"""What is said of a split step."""

import dataclasses
import io

import tensorflow as tf
from rich.console import Console

from graphs import zoo
from rewrite.split.summary import AN_OUTPUT
from tfplace.budget import PARTS
from tfplace.choosing.data_parallel import data_parallel_baseline
from tfplace.choosing.memory_limit import limited_to
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.report.device_check import check_devices, print_check
from tfplace.report.inspection import inspect
from tfplace.report.split_facts import split_sentences
from tfplace.report.text_report import simulation_facts, simulation_sentences
from tfplace.simulation.simulated import simulated


def test_a_split_step_is_inspected(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=5), path)
    options = ProblemOptions(path, cluster="k80x2", num_shards=2)
    prepared = prepare(options, trace=False)
    facts = inspect(prepared).split
    assert facts["shards"] == 2 and set(facts["axes"].values()) == {0}
    assert facts["sharded_ops"] > 40 and facts["sums"] > 4 and facts["flops_share"] > 0.9
    assert facts["flops_share"] + facts["beside_flops_share"] <= 1.0 + 1e-9
    said = list(split_sentences(facts))
    assert said[0] == (
        "split", "a batch of 5 into 2 shards of 3 or 2: axis 0 of images, labels",
    )  # fmt: skip
    assert " ops have a copy for each shard: 99 % of the floating-point work" in said[1][1]
    assert "nothing to do with the batch" in said[2][1] and "summed over" in said[3][1]
    assert said[4:] == [("whole", "nothing that works on the batch")]
    check = check_devices(prepared, simulated(prepared.problem, prepared.given))
    assert check.num_shards == 2 and check.runs
    printed = io.StringIO()
    for each in (check, dataclasses.replace(check, split=None)):
        print_check(each, Console(file=printed, width=200))
    assert "split     a batch of 5 into 2 shards of 3 or 2" in printed.getvalue()
    assert "split     the step came split into 2 shards" in printed.getvalue()
    baseline = data_parallel_baseline(prepared, options)
    assert baseline.num_shards == 2 and baseline.feasible
    assert baseline.num_transfers > 0 and baseline.transfer_bytes > 0
    facts = simulation_facts(prepared, options, prepared.given, can_run=True)
    assert facts["data_parallel"] == baseline
    told = dict(simulation_sentences(facts))
    assert told["kind"].startswith("both shards on GPU:0 (gradient accumulation)")
    assert told["compare"].startswith("shard i on device i: ")
    assert simulation_facts(prepared, options, prepared.given, False)["parallelism"] is None


def test_data_parallelism_lies_on_the_devices_that_max_devices_chose(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=4), path)
    options = ProblemOptions(path, cluster="k80x4")
    prepared = prepare(options, trace=False)
    names = ["/device:GPU:1", "/device:GPU:3"]
    chosen = [prepared.problem.device_names.index(name) for name in names]
    limited = limited_to(prepared.problem, chosen)
    limited = dataclasses.replace(prepared, problem=limited, unlimited=prepared.problem)
    baseline = data_parallel_baseline(limited, options)
    assert baseline.feasible and baseline.num_shards == 2
    used = {device for device, num_bytes in baseline.peak_bytes.items() if num_bytes}
    assert sorted(device for device in used if "GPU" in device) == names


def test_data_parallelism_that_can_not_be_had_says_why(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=2), path)
    options = ProblemOptions(path, cluster="k80x4")
    baseline = data_parallel_baseline(prepare(options, trace=False), options)
    assert not baseline.feasible and "into 4 parts" in baseline.reason
    one = ProblemOptions(path, cluster="local")
    assert data_parallel_baseline(prepare(one, trace=False), one) is None


def test_what_stays_whole_is_said_with_its_share():
    facts = {
        "shards": 4, "axes": {"x": 0, "y": 0, "times": 1}, "batch": 8, "any_batch": True,
        "weights": [],
        "sharded_ops": 3, "whole_ops": 1_005, "sums": 0, "joins": 1, "cuts": 2,
        "whole_because": [{"op_type": "Where", "count": 4, "reason": "why", "flops_share": 0.6},
                          {"op_type": "Identity", "count": 1, "reason": AN_OUTPUT}],
        "flops_share": 0.3, "beside_flops_share": 0.04, "below_flops_share": 0.06, "below_ops": 20,
    }  # fmt: skip
    assert list(split_sentences(facts)) == [
        ("split", "a batch of any size, priced for 8, into 4 shards of 2: axis 0 of x, y; axis 1 "
                  "of times"),
        ("", "3 ops have a copy for each shard: 30 % of the floating-point work"),
        ("", "980 have nothing to do with the batch (variables, updates, constants): 4 % "
             "of the floating-point work"),
        ("", "20 stay whole behind ops that do: 6 % of the floating-point work"),
        ("", "1 tensor is joined, 2 tensors are cut"),
        ("whole", "4 Where: why (60 % of the work)"),
        ("note", "most of the floating-point work is not split: shards gain little here"),
    ]  # fmt: skip


def test_what_lies_below_a_whole_op_has_to_do_with_the_batch(tmp_path):
    """A network behind an op without a rule; the signature that splitting adds is no model's."""
    root = tf.Module()
    root.w = tf.Variable(tf.ones([3, 50]))

    @tf.function(input_signature=[tf.TensorSpec([6, 3], name="x"), tf.TensorSpec([6, 1], name="y")])
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > 0) @ root.w) + tf.reduce_sum(y)
        root.w.assign_sub(tape.gradient(loss, root.w))
        return {"loss": loss}

    path = str(tmp_path / "model")
    tf.saved_model.save(root, path, signatures={"train_step": train_step})
    options = ProblemOptions(path, cluster="k80x2", num_shards=2)
    inspection = inspect(prepare(options, trace=False))
    facts = inspection.split
    assert facts["below_flops_share"] > 0.5 > 0.1 > facts["beside_flops_share"]
    assert inspection.signatures == ["train_step"]


def test_one_shard_runs_nothing_of_the_splitting(tmp_path, monkeypatch):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=2), path)
    monkeypatch.setattr("tfplace.preparing.loaded_model.StepToSplit.split", None)
    prepared = prepare(ProblemOptions(path, cluster="k80x2", num_shards=1), trace=False)
    assert prepared.split is None and prepared.source.split_graph is None


def test_a_step_is_split_for_the_comparison_within_the_time_that_is_left(tmp_path, monkeypatch):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=4), path)
    options = ProblemOptions(path, cluster="k80x2")
    prepared = prepare(options, trace=False)
    limits = []

    def limited(split, is_timed, trace_seconds, earlier):
        limits.append(trace_seconds)
        return prepare(split, trace=False)

    monkeypatch.setattr("tfplace.choosing.data_parallel.prepare", limited)
    assert data_parallel_baseline(prepared, options, 0.0).reason == "not tried: no time was left"
    assert data_parallel_baseline(prepared, options, 3.0).feasible
    timed = dataclasses.replace(prepared, costs=dataclasses.replace(prepared.costs, source="mixed"))
    untimed = data_parallel_baseline(timed, options, 1000.0)
    assert untimed.reason == "not tried: no time was left to time its ops"
    assert limits == [1.5, PARTS["timing_even_split"].most / 2]  # of GPUs and of the CPU
