"""A step that does not fit is made to fit, all the way: found, written, proven, run, read again."""

import dataclasses
import json
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from graphs.loading.sniff import sniff
from graphs.problem import Infeasible
from rewrite.memory.recompute import KEPT, has_plan
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.memory import within_memory
from tfplace.choosing.memory.fit import least_fitted
from tfplace.choosing.outcomes import Found
from tfplace.choosing.scheduling.model_order import OwnOrder, joined_ops
from tfplace.cli import main
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.progress import Progress
from tfplace.simulation.simulated import simulated

BATCH = 32
KIB = 1024


class Deep(tf.Module):
    """Dense layers of equal width, whose activations take most of a step's memory."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.weights = [
            tf.Variable(0.3 * rng.standard_normal((16, 16)).astype(np.float32)) for _ in range(8)
        ]

    @tf.function(input_signature=[tf.TensorSpec([BATCH * 64, 16], tf.float32, "x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            for weight in self.weights:
                x = tf.tanh(tf.nn.softplus(x @ weight))
            loss = tf.reduce_mean(x * x)
        for gradient, weight in zip(tape.gradient(loss, self.weights), self.weights, strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("models") / "deep")
    model = Deep()
    tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
    return path


@pytest.fixture(scope="module")
def peak(deep):
    """What the step holds on one device without a plan."""
    return max(tfplace.simulate(deep, cluster="k80x2").peak_bytes.values())


FLAGS = ["--cluster=k80x2", "--memory_reserve=0", "--verbosity=-1", "--algorithm=single"]
FLAGS += ["--evaluator=simulate", "--max_trials=1"]
ON_ONE = "--pin=.=/device:GPU:0"


def optimized(model, out, *flags):
    status = main(["optimize", str(model), *FLAGS, f"--output_dir={out}", *flags])
    path = out / "assets.extra/tfplace/report.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def steps(path, num_steps=3):
    loaded = tf.saved_model.load(str(path))
    step = loaded.signatures["train_step"]
    x = tf.constant(np.random.default_rng(1).standard_normal((BATCH * 64, 16)), tf.float32)
    losses = [step(x=x)["loss"].numpy() for _ in range(num_steps)]
    return losses, [variable.numpy() for variable in step.graph.variables or loaded.variables]


@pytest.fixture(scope="module")
def fitted(deep, peak, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted") / "out"
    limit = peak * 6 // 10
    flags = [ON_ONE, "--shards=1", f"--device_memory={limit}B", "--verify=run"]
    status, report = optimized(deep, out, *flags)
    assert status == 0
    return out, report, limit


def test_it_fits_and_says_what_runs_again(fitted, peak):
    out, report, limit = fitted
    assert max(report["best"]["peak_bytes"].values()) <= limit
    plan = report["memory_plan"]
    assert plan["ops_run_again"] > 0
    assert 0.0 < plan["more_work"] < 0.4
    assert plan["bytes_on_host"] == plan["tensors_on_host"] * 128 * KIB > 0
    assert max(plan["peak_bytes_without"].values()) == peak
    assert report["order"]["edges"] > plan["ops_run_again"]  # it fits in no other order
    assert report["verdict"] == "placed"
    assert "can hold it as it came; this plan fits one" in report["verdict_sentence"]
    assert f"{plan['ops_run_again']} ops run again and" in report["verdict_sentence"]
    assert f"{plan['tensors_on_host']} tensors wait on the host" in report["verdict_sentence"]
    assert has_plan(sniff(out).proto.meta_graphs[0].graph_def)


def test_what_waits_on_the_host_is_written_there_though_all_else_is_pinned(fitted):
    out, _, _ = fitted
    graph_def = sniff(out).proto.meta_graphs[0].graph_def
    nodes = [node for function in graph_def.library.function for node in function.node_def]
    waiting = [node for node in nodes if KEPT in node.attr]
    assert waiting
    assert {node.device for node in waiting} == {"/device:CPU:0"}


def test_it_is_proven_and_equal_bit_for_bit(fitted, deep):
    out, report, _ = fitted
    verified = report["verified"]
    assert verified["structure"]
    assert any("run again" in each for each in verified["structure_compared"])
    assert verified["outputs_equal"]
    assert verified["max_abs_diff"] == 0.0
    given, placed = steps(deep), steps(out)
    assert given[0] == placed[0]
    for before, after in zip(given[1], placed[1], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(("in_order", "is_written"), [(1, True), (3, False)])
def test_the_order_is_written_in_which_a_step_fits_if_it_would_not_in_tensorflows(
    deep, monkeypatch, in_order, is_written
):
    problem = ProblemOptions(model=deep, cluster="workers:1", device_memory=["1GiB"])
    prepared = prepare(problem, trace=False)
    best = Candidate("single", prepared.given, simulated(prepared.problem, prepared.given).outcome)
    searched = SimpleNamespace(
        best=best, everything=[best], result=SimpleNamespace(interrupted=False)
    )

    def peaks(prepared, device_of_op):
        return [(2 if prepared.order is None else in_order) * 2**29]

    monkeypatch.setattr(within_memory, "predicted_peaks", peaks)
    options = OptimizeOptions(problem)
    found = within_memory.within_memory(Found(prepared, searched), options, Progress())
    assert (found is not None) == is_written
    if found is not None:
        assert isinstance(found.prepared.order, OwnOrder)
    nothing_asked = dataclasses.replace(
        options, problem=dataclasses.replace(problem, device_memory=())
    )
    assert within_memory.within_memory(Found(prepared, searched), nothing_asked, Progress()) is None


def test_the_page_shows_memory_with_and_without_the_plan(fitted):
    out, _, _ = fitted
    page = (out / "assets.extra/tfplace/report.html").read_text()
    assert page.count("<path class='before'") == 2  # the GPU's, and its host's
    assert "without its memory plan" in page


def test_what_was_written_is_simulated_with_its_plan_and_order(fitted, peak):
    out, report, limit = fitted
    written = tfplace.simulate(str(out), cluster="k80x2")
    assert max(written.peak_bytes.values()) == max(report["best"]["peak_bytes"].values()) <= limit
    assert written.step_seconds == pytest.approx(report["best"]["step_seconds"])
    # Who asks for a new order gets one for the model without its own.
    assert (
        max(tfplace.simulate(str(out), cluster="k80x2", order="edges").peak_bytes.values()) > limit
    )


def test_what_was_written_is_checked_with_its_plan(fitted, capsys):
    out, _, limit = fitted
    assert main(["check", str(out), "--cluster=k80x2", "--format=json", "--verbosity=-1"]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["/device:CPU:0"]["peak_bytes"] > 0
    assert memory["/device:GPU:0"]["peak_bytes"] <= limit


@pytest.mark.parametrize("finds_room", [[True], [False, True], [False] * 4])
def test_a_plan_that_finds_no_room_on_its_device_is_made_again_with_less(
    deep, monkeypatch, finds_room
):
    whole = prepare(ProblemOptions(model=deep, cluster="workers:1"), trace=False)
    peak = simulated(whole.problem, whole.given).peak_bytes.popitem()[1]
    problem = ProblemOptions(model=deep, cluster="workers:1", device_memory=[f"{peak * 7 // 10}B"])
    prepared = prepare(problem, trace=False)
    given = Candidate("given", prepared.given, simulated(prepared.problem, prepared.given).outcome)
    searched = Searched([given], [given], SimpleNamespace(interrupted=False), [])
    tried = []

    def runs(planned):
        tried.append(planned.searched.candidates[-1].outcome.peak_bytes[0])
        return finds_room[len(tried) - 1]

    monkeypatch.setattr(within_memory, "_runs", runs)
    found = within_memory.within_memory(
        Found(prepared, searched), OptimizeOptions(problem), Progress()
    )
    assert (found is not None) == finds_room[-1]
    assert len(tried) == len(finds_room)
    assert tried == sorted(tried, reverse=True)
    assert tried[-1] < 0.95 * tried[0] or len(tried) == 1


@pytest.mark.parametrize(
    ("reason", "is_taken"), [("memory", False), ("crash", False), ("timeout", True)]
)
def test_a_plan_whose_run_fails_for_want_of_memory_has_found_no_room(
    deep, monkeypatch, reason, is_taken
):
    prepared = prepare(ProblemOptions(model=deep, cluster="workers:1"), trace=False)
    outcome = simulated(prepared.problem, prepared.given).outcome
    planned = Candidate(within_memory.NAME, prepared.given, outcome)
    searched = Searched([planned], [planned], SimpleNamespace(interrupted=False), [])
    monkeypatch.setattr(
        within_memory,
        "measure_peaks",
        lambda graphs, *rest: dict.fromkeys(graphs, Infeasible(reason, "it ended")),
    )
    assert within_memory._runs(Found(prepared, searched)) is is_taken


def test_placed_again_it_has_no_plan_where_it_needs_none(fitted, tmp_path):
    out, _, _ = fitted
    status, report = optimized(out, tmp_path / "again", "--shards=1", "--verify=structure")
    assert status == 0
    assert report["memory_plan"] is None
    assert not has_plan(sniff(tmp_path / "again").proto.meta_graphs[0].graph_def)


def test_nobody_gets_a_plan_who_wants_none(deep, peak, tmp_path, capsys):
    flags = [ON_ONE, "--shards=1", f"--device_memory={peak * 6 // 10}B"]
    status, _ = optimized(
        deep, tmp_path / "out", *flags, "--memory_plan=none", "--verify=structure"
    )
    assert status == 3
    assert "found none" in capsys.readouterr().err


def test_what_no_plan_makes_fit_ends_with_the_figures(deep, tmp_path, capsys):
    flags = [ON_ONE, "--shards=1", f"--device_memory={64 * KIB}B"]
    status, _ = optimized(deep, tmp_path / "out", *flags)
    assert status == 3
    message = " ".join(capsys.readouterr().err.split())
    assert "usable" in message
    assert "wait on the host it takes about" in message
    number, unit = re.search(r"or ([\d.]+) (\w+) of memory on /device:GPU:0$", message).groups()
    flags[-1] = f"--device_memory=/device:GPU:0={number}{unit}"  # as advised
    status, report = optimized(deep, tmp_path / "out", *flags)
    assert status == 0
    assert report["memory_plan"]["ops_run_again"] > 0


def test_a_nearest_placement_without_a_plan_is_not_the_least(deep, tmp_path, capsys, monkeypatch):
    tried = []

    def not_first(*asked):
        tried.append(asked)
        return least_fitted(*asked) if len(tried) > 1 else None

    monkeypatch.setattr(within_memory, "least_fitted", not_first)
    flags = [ON_ONE, "--shards=1", f"--device_memory={64 * KIB}B"]
    assert optimized(deep, tmp_path / "out", *flags)[0] == 3
    message = " ".join(capsys.readouterr().err.split())
    assert "wait on the host it takes about" in message and "the nearest" not in message


def test_a_split_step_has_a_plan_too(deep, peak, tmp_path):
    flags = [ON_ONE, "--shards=2", "--verify=run", f"--device_memory={peak // 2}B"]
    status, report = optimized(deep, tmp_path / "out", *flags)
    assert status == 0
    assert report["split"]["shards"] == 2
    assert report["memory_plan"]["ops_run_again"] > 0
    assert report["verified"]["outputs_equal"]


class Recurrent(tf.Module):
    """Twenty steps in time with the same weight: its twenty gradients are most of what is held."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.weight = tf.Variable(0.1 * rng.standard_normal((128, 128)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([20, 4, 128], tf.float32, "x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            state = tf.zeros([4, 128])
            for step in tf.unstack(x):
                state = tf.tanh(step + state @ self.weight)
            loss = tf.reduce_mean(state * state)
        self.weight.assign_sub(0.5 * tape.gradient(loss, self.weight))
        return {"loss": loss}


def recurrent_steps(path):
    loaded = tf.saved_model.load(str(path))
    step = loaded.signatures["train_step"]
    x = tf.constant(np.random.default_rng(1).standard_normal((20, 4, 128)), tf.float32)
    losses = [step(x=x)["loss"].numpy() for _ in range(3)]
    return [*losses, *(variable.numpy() for variable in step.graph.variables)]


def test_gradients_of_a_weight_that_is_used_often_are_added_as_they_come(tmp_path, capsys):
    path, out = str(tmp_path / "recurrent"), tmp_path / "out"
    model = Recurrent()
    tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
    peak = max(tfplace.simulate(path, cluster="k80x2").peak_bytes.values())
    flags = ["--shards=1", f"--device_memory={peak * 4 // 10}B"]
    status, report = optimized(path, out, ON_ONE, *flags, "--verify=run")
    assert status == 0
    plan = report["memory_plan"]
    assert plan["sums_in_turn"] == 1
    assert plan["ops_run_again"] == plan["tensors_on_host"] == 0
    assert report["best"]["peak_bytes"]["/device:GPU:0"] <= peak * 4 // 10
    assert report["verified"]["max_abs_diff"] == 0.0
    assert "the terms of 1 sum are added one by one" in " ".join(capsys.readouterr().out.split())
    for given, placed in zip(recurrent_steps(path), recurrent_steps(out), strict=True):
        np.testing.assert_array_equal(given, placed)
    assert main(["inspect", path, *FLAGS[:2], f"--device_memory={peak * 4 // 10}B"]) == 0
    assert "the terms of 1 sum are added one by one" in " ".join(capsys.readouterr().out.split())
    assert main(["check", str(out), "--cluster=k80x2", "--memory_reserve=0"]) == 0


def test_ops_run_again_beside_sums_that_are_added_in_turn(tmp_path):
    path, out = str(tmp_path / "recurrent"), tmp_path / "out"
    model = Recurrent()
    tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
    status, report = optimized(
        path, out, ON_ONE, "--shards=1", "--device_memory=350KiB", "--verify=run"
    )
    assert status == 0
    assert report["memory_plan"]["sums_in_turn"] == 1
    assert report["memory_plan"]["ops_run_again"] + report["memory_plan"]["tensors_on_host"] > 0
    for given, placed in zip(recurrent_steps(path), recurrent_steps(out), strict=True):
        np.testing.assert_array_equal(given, placed)


class Wide(tf.Module):
    """A large weight with a moment, in a step that keeps little else."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.weight = tf.Variable(0.1 * rng.standard_normal((64, 512)).astype(np.float32))
        self.moment = tf.Variable(tf.zeros((64, 512)))

    @tf.function(input_signature=[tf.TensorSpec([8, 64], tf.float32, "x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.weight) ** 2)
        gradient = tape.gradient(loss, self.weight)
        self.moment.assign(0.9 * self.moment + gradient)
        self.weight.assign_sub(0.1 * self.moment)
        return {"loss": loss}


def test_variables_go_to_the_host_where_a_gpu_has_no_room_for_them(tmp_path):
    path = str(tmp_path / "wide")
    model = Wide()
    tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
    peak = max(tfplace.simulate(path, cluster="k80x2").peak_bytes.values())
    limits = [f"--device_memory=/device:GPU:{gpu}={peak * 7 // 10}B" for gpu in (0, 1)]
    problem = ProblemOptions(path, cluster="k80x2", memory_reserve=0.0)
    limited = dataclasses.replace(problem, device_memory=[each.split("=", 1)[1] for each in limits])
    prepared = prepare(limited, trace=False)
    on_gpu = np.array(prepared.given)
    given = Candidate("given", on_gpu, simulated(prepared.problem, on_gpu).outcome)
    searched = Searched([given], [given], SimpleNamespace(interrupted=False), [])
    found = within_memory.within_memory(
        Found(prepared, searched), OptimizeOptions(limited), Progress()
    )
    assert found is not None and found.searched.best is not None
    assert found.searched.best.outcome.peak_bytes[1] <= peak * 7 // 10
    holds = found.prepared.problem.graph.op_persistent_bytes > 0
    assert set(found.searched.best.device_of_op[holds]) == {0}
    assert 1 in found.searched.best.device_of_op


class Convolved(tf.Module):
    """Convolutions with biases, whose gradients oneDNN's kernels compute in pairs."""

    def __init__(self):
        rng = np.random.default_rng(0)
        shapes = [(3, 3, 4, 4), (4,)] * 4
        self.weights = [
            tf.Variable(0.3 * rng.standard_normal(shape), dtype=tf.float32) for shape in shapes
        ]

    @tf.function(input_signature=[tf.TensorSpec([8, 16, 16, 4], tf.float32, "x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            for filters, bias in zip(self.weights[::2], self.weights[1::2], strict=True):
                x = tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), filters, 1, "VALID")
                x = tf.nn.softplus(tf.nn.bias_add(x, bias))
            loss = tf.reduce_mean(x * x)
        for gradient, weight in zip(tape.gradient(loss, self.weights), self.weights, strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


def test_what_onednn_joins_comes_one_behind_the_other(tmp_path):
    path, model = str(tmp_path / "convolved"), Convolved()
    tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
    prepared = prepare(ProblemOptions(model=path, cluster="workers:1"), trace=False)
    types, pairs = prepared.problem.graph.op_types, joined_ops(prepared)
    firsts = Counter(types[one] for one, _ in pairs)

    edges = OwnOrder().ordered(prepared, prepared.given).edges

    assert firsts == {"Pad": 4, "Conv2D": 4, "Conv2DBackpropFilter": 4}
    behind = dict(zip(edges.before.tolist(), edges.after.tolist(), strict=True))
    assert {one: behind.get(one) for one, _ in pairs} == dict(pairs)
    of_biases = [second for one, second in pairs if types[second] == "BiasAddGrad"]
    assert not within_memory.may_change(prepared).hold[of_biases].any()


class Listed(tf.Module):
    """A step of two layers whose gradients go to the updates in one list, as Keras hands them."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.weights = [
            tf.Variable(0.1 * rng.standard_normal((256, 256)), dtype=tf.float32) for _ in range(8)
        ]

    @tf.function(input_signature=[tf.TensorSpec([4, 256], tf.float32, "x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            for weight in self.weights:
                x = tf.tanh(tf.identity_n([x @ weight])[0])
            loss = tf.reduce_mean(x * x)
        gradients = tf.identity_n(tape.gradient(loss, self.weights))
        for gradient, weight in zip(gradients, self.weights, strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


def test_gradients_that_wait_for_one_another_are_used_as_they_come(tmp_path, capsys):
    path, out = str(tmp_path / "listed"), tmp_path / "out"
    model = Listed()
    tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
    limit = f"--device_memory={8 * 256 + 4 * 256}KiB"  # all weights and half of their gradients
    status, report = optimized(path, out, ON_ONE, "--shards=1", limit, "--verify=run")
    assert status == 0
    plan = report["memory_plan"]
    assert (plan["lists_in_turn"], plan["sums_in_turn"], plan["ops_run_again"]) == (1, 0, 0)
    assert report["verified"]["max_abs_diff"] == 0.0
    assert "gradients are used as they come" in " ".join(capsys.readouterr().out.split())
    written = sniff(out).proto.meta_graphs[0].graph_def
    forward = [n for f in written.library.function for n in f.node_def if n.op == "MatMul"]
    assert not any("_reads_past" in node.attr for node in forward)
    assert main(["check", str(out), "--cluster=k80x2", "--memory_reserve=0"]) == 0
    capsys.readouterr()
    assert main(["inspect", path, "--cluster=workers:1", FLAGS[1], limit]) == 0  # it has no host
    assert "gradients are used as they come" in " ".join(capsys.readouterr().out.split())
