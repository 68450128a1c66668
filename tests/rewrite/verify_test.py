"""Given and emitted models run side by side."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from graphs.errors import ModelError
from graphs.host.asked_child import ChildError
from graphs.loading.feeds import generate_feeds
from graphs.loading.load import load
from graphs.loading.sniff import sniff
from graphs.source_model import Initialization, Variable
from rewrite import verify as verify_module
from rewrite import verify_child, verify_plan
from rewrite.agreement import OutputAgreement
from rewrite.place_graph import place_graph
from rewrite.verify import RunLimits, _on_copies, verify
from rewrite.verify_child import compared, settled
from rewrite.verify_messages import (
    BareGraph,
    Check,
    CheckOutcome,
    ChecksSoFar,
    ComparedValue,
    ModelRun,
    VerifyRequest,
)
from tests.rewrite import models
from tests.rewrite.conftest import placed_model
from tests.rewrite.placements import Placed

LOADS = ("tf.saved_model.load", "tf.saved_model.load, variables on their devices")
EMPTY = f"{LOADS[1]}, empty batch"


def _verify(placed: Placed, path: str = "", **more):
    source = placed.source
    feeds = generate_feeds(source.graph_def, source.feeds, source.fetches, 0)
    return verify(source, path or placed.path, feeds, **more)


def test_checks_are_made_on_copies_that_leave_nothing(tmp_path):
    """Also of a graph; a run that two checks make stays one."""
    with tf.Graph().as_default() as graph:
        tf.raw_ops.WriteFile(filename=str(tmp_path / "file"), contents="text")
        tf.constant(1.0)
    bare = BareGraph(graph.as_graph_def().SerializeToString(), Initialization(), (), "")
    given = ModelRun(bare, {}, {})
    checks = [Check("a", given, given), Check("b", given, given)]
    first, second = _on_copies(checks, str(tmp_path))
    assert first.given is first.placed is second.given
    nodes = tf.compat.v1.GraphDef.FromString(first.given.model.graph_def).node
    assert {node.op for node in nodes} == {"Assert", "Const"}


def test_tf2_computes_the_same_however_it_is_loaded(tf2):
    verified = _verify(tf2)

    assert (verified.outputs_equal, verified.max_abs_diff) == (True, 0.0)
    assert verified.not_compared == verified.differing == ()
    serving, training = ("serving_default", "y"), ("train_step", "loss")

    def values(signature, output, how):
        label = f"signature {signature} ({how})"
        yield from (f"{label}: {output} of step {step}" for step in (1, 2))
        yield from (f"{label}: variable {name}" for name in ("w", "w 2"))

    assert list(verified.compared) == [
        *(value for how in LOADS for value in values(*training, how)),
        *(value for how in LOADS for value in values(*serving, how)),
        *(value for each in (serving, training) for value in values(*each, EMPTY)),
    ]


def test_the_path_of_an_asset_is_no_difference(tmp_path):
    """A counter makes the signature change variables; one holds the path of the table's file."""
    placed = placed_model(load(models.write_routed(tmp_path / "in")), tmp_path)

    verified = _verify(placed)

    assert verified.differing == ()
    label = "signature serving_default (tf.saved_model.load)"
    assert f"{label}: variable Variable" in verified.compared


def test_a_model_with_each_variable_twice_is_compared_through_the_loader(tmp_path):
    placed = placed_model(load(models.write_keras3_step(tmp_path / "in")), tmp_path)

    verified = _verify(placed)

    assert verified.outputs_equal and verified.run == "equal"
    assert verified.compared[0] == "signature train_step (tf.saved_model.load): loss of step 1"
    assert verified.not_compared == ()


def test_a_graph_trains_through_its_new_signature(graph_def):
    verified = _verify(graph_def)

    assert (verified.outputs_equal, verified.max_abs_diff) == (True, 0.0)
    assert list(verified.compared) == [
        "the run: loss:0 of step 1",
        "the run: loss:0 of step 2",
        "the run: variable w",
        "the run: variable b",
        *(
            f"signature train_step ({how}): loss:0 of step {step}"
            for how in LOADS
            for step in (1, 2)
        ),
    ]


def test_random_outputs_are_listed_and_table_lookups_compared(tf1):
    verified = _verify(tf1)

    assert verified.outputs_equal
    assert "signature serving_default (v1 Session): score" in verified.compared
    (random,) = verified.not_compared
    assert random.endswith(" more: it differs between two runs of the model as it came")
    assert not any("noise" in name for name in verified.compared)


def test_a_made_training_step_is_compared_where_its_graph_is_given(keras_layers):
    placed = place_graph(keras_layers.source.graph_def, keras_layers.wanted).graph_def
    verified = _verify(keras_layers, placed_graph_def=placed)
    assert verified.outputs_equal
    label = "the run, with the training step that was made for it"
    assert f"{label}: train_step/loss:0 of step 2" in verified.compared
    variables = [name for name in verified.compared if name.startswith(f"{label}: variable dense")]
    assert {name.rpartition("/")[2] for name in variables} == {"kernel", "bias"}


def test_a_changed_model_is_found_out(tf2, tmp_path):
    """Each tanh of the emitted model became a sigmoid."""
    wrong = tmp_path / "wrong"
    shutil.copytree(tf2.path, wrong)
    saved_model = sniff(wrong).proto
    for function in saved_model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "Tanh":
                node.op = "Sigmoid"
    (wrong / "saved_model.pb").write_bytes(saved_model.SerializeToString())

    verified = _verify(tf2, str(wrong))

    assert not verified.outputs_equal
    assert verified.max_abs_diff > 0.01
    first = "signature train_step (tf.saved_model.load): loss of step 1: differs by "
    assert any(said.startswith(first) for said in verified.differing)


def test_a_damaged_original_is_an_error(tf2, tmp_path):
    """A number of the original's variables was changed: their checksum says so."""
    damaged = tmp_path / "damaged"
    shutil.copytree(tf2.source.saved_model_dir, damaged)
    data = next((damaged / "variables").glob("*.data-*"))
    content = bytearray(data.read_bytes())
    content[0] ^= 255
    data.write_bytes(content)
    source = dataclasses.replace(tf2.source, saved_model_dir=str(damaged))
    feeds = generate_feeds(source.graph_def, source.feeds, source.fetches, 0)
    with pytest.raises(ModelError, match=r"its variables are damaged .*copy the whole model again"):
        verify(source, tf2.path, feeds)


def test_devices_of_other_tasks_need_a_cluster(tf2, tmp_path):
    remote = tmp_path / "remote"
    shutil.copytree(tf2.path, remote)
    saved_model = sniff(remote).proto
    saved_model.meta_graphs[0].graph_def.node[0].device = "/job:worker/task:1/device:CPU:0"
    (remote / "saved_model.pb").write_bytes(saved_model.SerializeToString())

    verified = _verify(tf2, str(remote))

    assert not verified.outputs_equal
    assert verified.compared == ()
    assert verified.run == "not run: its devices are of other tasks, which are not here"


VALUE = ComparedValue("y", max_abs_diff=0.0, is_equal=True, is_random=False)


@pytest.fixture
def scripted_child(monkeypatch):
    """Puts answers in the place of the child; returns the labels that each child was asked for."""

    def scripted(*answers):
        asked, left = [], list(answers)

        def ask_child(module, request, timeout_seconds, memory_bytes=None, environment=None):
            labels = [check.label for check in request.checks]
            asked.append(labels)
            outcomes = [CheckOutcome(label, "compared", values=[VALUE]) for label in labels]
            return left.pop(0)(outcomes) if left else ChecksSoFar(outcomes)

        monkeypatch.setattr("rewrite.verify.ask_child", ask_child)
        return asked

    return scripted


def _dies(num_done, message, runs_placed=True, is_timeout=False):
    def child(outcomes):
        so_far = ChecksSoFar(outcomes[:num_done], runs_placed)
        raise ChildError(message, so_far, is_timeout)

    return child


@pytest.mark.parametrize("runs_placed", [True, False])
def test_a_crash_is_the_fault_of_the_model_that_ran(tf2, scripted_child, runs_placed):
    """The child dies in the second check."""
    asked = scripted_child(_dies(1, "it was killed by SIGABRT: oops", runs_placed))

    verified = _verify(tf2)

    assert asked[1] == asked[0][2:]
    assert len(verified.compared) == len(asked[0]) - 1
    said = "it was killed by SIGABRT: oops"
    if runs_placed:
        assert verified.differing == (f"{asked[0][1]}: only the emitted model fails: {said}",)
    else:
        assert verified.not_compared == (f"{asked[0][1]}: the model as it came fails: {said}",)
    assert verified.outputs_equal is not runs_placed


def test_a_step_that_fails_as_it_came_is_told_once(tf2, scripted_child):
    def fails(outcomes):
        kinds = [dataclasses.replace(o, kind="given_failed", why="x", values=()) for o in outcomes]
        return ChecksSoFar(kinds)

    asked = scripted_child(fails)
    verified = _verify(tf2)

    assert (verified.fails, verified.run) == ("x", "not run: x")
    others = len(asked[0]) - 1
    (said,) = verified.not_compared
    assert said == f"{asked[0][0]} and {others} more: the model as it came fails: x"


def test_a_check_is_not_blamed_for_the_time_of_others(tf2, scripted_child):
    asked = scripted_child(_dies(2, "it took more than 600 s", is_timeout=True))

    verified = _verify(tf2)

    assert asked[1] == asked[0][2:]
    assert verified.outputs_equal and not verified.differing
    assert len(verified.compared) == len(asked[0])


def test_a_first_check_that_takes_too_long_is_ended(tf2, scripted_child):
    """Time is no proof that the emitted model is another one."""
    asked = scripted_child(_dies(0, "it took more than 600 s", is_timeout=True))

    verified = _verify(tf2)

    assert asked[1] == asked[0][1:]
    assert verified.differing == ()
    assert verified.not_compared == (f"{asked[0][0]}: it was ended: it took more than 600 s",)


def test_what_has_no_time_left_is_not_begun(tf2, scripted_child):
    limits = RunLimits(seconds=5.0, all_seconds=0.0)
    asked = scripted_child()

    verified = _verify(tf2, limits=limits)

    assert not asked and not verified.outputs_equal
    assert verified.run == "not run: the 0 s for comparing were used up"


def test_a_child_that_takes_too_much_memory_ends_itself(tf2):
    """A MiB more than what it was forked with holds no session."""
    verified = _verify(tf2, limits=RunLimits(memory_bytes=2**20))

    assert verified.run == "ended: it held more than 0.0 GiB of memory"
    assert not verified.outputs_equal and not verified.compared and not verified.differing


def test_equal_is_said_only_where_the_run_itself_was_compared(graph_def, monkeypatch):
    """A signature that is not the run agrees; the run is left out."""
    plan = verify_plan.Plan.checks

    def without_the_run(self, *arguments):
        for check in plan(self, *arguments):
            yield dataclasses.replace(check, is_run=False)

    monkeypatch.setattr(verify_plan.Plan, "checks", without_the_run)
    verified = _verify(graph_def)
    assert verified.compared and not verified.differing
    assert not verified.outputs_equal and verified.run.startswith("not run: ")


def test_a_child_that_dies_after_the_last_check_changes_nothing(tf2, scripted_child):
    asked = scripted_child(_dies(None, "it was killed by SIGSEGV: cleaning up"))

    verified = _verify(tf2)

    assert len(asked) == 1 and len(verified.compared) == len(asked[0])
    assert verified.outputs_equal


def test_what_changes_from_run_to_run_is_not_compared():
    first, second = {"a": np.float32([1.0])}, {"a": np.float32([2.0])}
    [value] = compared(first, second, first, OutputAgreement())
    assert value == ComparedValue("a", max_abs_diff=0.0, is_equal=True, is_random=True)


@pytest.mark.parametrize(
    ("loss", "moved", "is_random"),
    [
        (2.0, 3e-5, True),  # dropout moved it further than it happened to between the two runs
        (1.0, 3e-5, False),  # nothing here is random
        (2.0, 0.5, False),  # no dropout moves it so far
    ],
)
def test_what_dropout_moves_a_little_is_random_too(loss, moved, is_random):
    first = {"loss": np.float32([1.0]), "average": np.float32([1.0])}
    second = {"loss": np.float32([loss]), "average": np.float32([1.0 + 9e-6])}
    placed = {"loss": np.float32([1.0]), "average": np.float32([1.0 + moved])}
    _, value = compared(first, second, placed, OutputAgreement())
    assert (value.is_equal, value.is_random) == (False, is_random)


@pytest.mark.parametrize(
    ("draws", "again", "is_equal"), [(1, 3, True), (1, 9, False), (0, 3, False)]
)
def test_what_a_draw_changes_in_few_runs_is_no_difference(draws, again, is_equal):
    loss = ComparedValue("loss", 1.0, is_equal=not draws, is_random=bool(draws))
    weight = ComparedValue("weight", 0.02, is_equal=False, is_random=False)
    same = dataclasses.replace(weight, is_equal=True)
    runs = iter([*[[loss, weight]] * (again - 1), [loss, same]])
    assert settled([loss, weight], lambda: next(runs))[1].is_equal == is_equal


def _growing_step(kind: str) -> ModelRun:
    """Two steps of a step whose first one makes rounding errors as large as its values."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [64, 4], name="x")
        made = np.random.default_rng(0)
        names = ("a", "b")
        a, b = (
            v1.get_variable(name, dtype=tf.float32, initializer=made.normal(size=s).astype("f4"))
            for name, s in zip(names, ((4, 16), (16, 1)), strict=True)
        )
        rows = tf.reverse(x, [0]) if kind == "rows in another order" else x
        y = tf.sin(rows @ a) @ b
        loss = tf.reduce_sum(y * y) if kind == "sum" else tf.reduce_mean(y * y)
        grads = tf.gradients(loss, [a, b])
        if kind == "no gradient":
            grads[1] = tf.zeros_like(grads[1])
        steps = [v.assign_sub(1e6 * g).op for v, g in zip((a, b), grads, strict=True)]
        train = tf.group(steps, name="train")
        loss = tf.identity(loss, name="loss")
        init = v1.global_variables_initializer()
    variables = [Variable(v.op.name, v.op.name, "float32", tuple(v.shape), True) for v in (a, b)]
    model = BareGraph(
        graph.as_graph_def().SerializeToString(), Initialization([init.name]), variables, ""
    )
    feeds = {"x": np.random.default_rng(1).normal(size=(64, 4)).astype("f4")}
    return ModelRun(model, feeds, {"loss": "loss"}, [train.name], 2, variables)


@pytest.mark.parametrize("kind", ["rows in another order", "sum", "no gradient"])
def test_rounding_errors_that_grow_are_no_difference_and_defects_are(kind):
    check = Check("the run", _growing_step(""), _growing_step(kind), is_run=True)
    runner = verify_child._Runner(VerifyRequest([check], verify_module.HERE, 1, "", 60.0))
    outcome = verify_child._outcome(runner, check, lambda runs_placed: None)
    verified = verify_module._summed_up([outcome], [True], ())
    if kind == "rows in another order":
        assert not verified.differing and verified.run == "equal"
        assert "the run: variable a after one step" in verified.compared
        assert any(text.endswith("change it as much") for text in verified.not_compared)
    else:
        assert verified.differing and verified.run.startswith("not equal: ")


def test_reports_are_written_beside_the_model(tf2):
    assert Path(tf2.path, "assets.extra/tfplace/report.json").read_bytes() == b"{}"
