"""Whole steps in float64: what the split step computes is what the unsplit one does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.shapes import infer, infer_known
from graphs.host.asked_child import ChildError
from graphs.loading.feeds import feeds_of_opened
from graphs.loading.load import load
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.float64.convert import to_float64
from rewrite.split.prove.runs import compare_runs as comparing
from rewrite.split.prove.runs import session as wide_session
from rewrite.split.prove.runs.child import compare
from rewrite.split.prove.runs.compare_runs import compare_runs, few_entries, request_of, table_start
from rewrite.split.prove.runs.messages import RunsCompared
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.prove_split import ProofLimits, prove_split
from rewrite.split.states import Partial
from tests.rewrite.split.run_step import flat_graph, split_model

v1 = tf.compat.v1
BATCH = 5


def small_step():
    """A step with a mean loss, dropout, batch normalisation, an update and an unseeded op."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 6, 6, 2), "x")
        labels = v1.placeholder(tf.int32, (BATCH,), "labels")
        with v1.variable_scope("", use_resource=True):
            w = v1.get_variable("w", (3, 3, 2, 4))
            scale, offset = v1.get_variable("scale", 4), v1.get_variable("offset", 4)
        y = tf.nn.conv2d(x, w, 1, "SAME")
        y, mean, _ = v1.nn.fused_batch_norm(y, scale, offset, is_training=True)
        y = tf.nn.dropout(y, 0.4)
        logits = tf.reduce_mean(y, [1, 2])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses, name="loss")
        variables = [w, scale, offset]
        updates = [
            tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.1, delta=g)
            for v, g in zip(variables, tf.gradients(loss, variables), strict=True)
        ]
        train = tf.group(*updates, name="train")
        mean = tf.identity(mean, "statistic")
    feeds = {"x:0": np.zeros((BATCH, 6, 6, 2), np.float32), "labels:0": np.zeros(BATCH, np.int32)}
    flat = flat_graph(graph, feeds, [loss.name, mean.name, train.name])
    axes = {"x:0": 0, "labels:0": 0}
    flat, properties = decompose_norms(flat, infer(flat), BATCH, axes)
    return flat, properties, decide(flat, properties, BATCH, axes)


@pytest.fixture(scope="module")
def small():
    return small_step()


def compared(flat, properties, decisions, step, exact):
    feeds = feeds_of_opened(flat, properties, flat.feeds, 0)
    return compare(request_of(flat, decisions, step, exact, feeds))


def test_all_proofs_of_a_step(small):
    flat, _, decisions = small
    step = build_step(flat, decisions, 3)
    proof = prove_split(flat, decisions, step, 3, ProofLimits())
    assert proof.run == "equal"
    assert proof.ops.proven_ops == proof.ops.distinct_ops > 15
    assert not proof.differing and not proof.ops.not_proven and not proof.runs.not_compared
    assert {"loss:0 of step 2", "statistic:0 of step 1", "variable w"} <= set(proof.runs.compared)
    assert proof.runs.max_relative_difference < 1e-12
    assert proof.runs.narrow_ops == {}
    report = proof.report()
    assert report["structure"]["sums"] == step.num_sums
    assert report["run"] == "equal"


def test_where_no_run_is_affordable_the_report_says_so(small, monkeypatch):
    flat, _, decisions = small
    step = build_step(flat, decisions, 2)
    limits = ProofLimits(op_seconds=0, run_seconds=0, why_no_run="it would take 3 hours")
    proof = prove_split(flat, decisions, step, 2, limits)
    assert proof.run == "not run: it would take 3 hours"
    assert proof.joints is not None and not proof.differing


@pytest.mark.parametrize("change", [{}, {"outputs": (Partial("max"),)}])
def test_a_wrong_rule_is_found(small, change):
    flat, properties, decisions = small
    wrong = dataclasses.replace(decisions.answer_of_op["loss"], is_mean=False, **change)
    changed = dataclasses.replace(
        decisions,
        answer_of_op={**decisions.answer_of_op, "loss": wrong},
        state_of_tensor={**decisions.state_of_tensor, "loss:0": wrong.outputs[0]},
    )
    step = build_step(flat, changed, 2)
    exact = prove_joints(flat, changed, step, 2).exact
    result = compared(flat, properties, changed, step, exact)
    assert result.differing


def broken(step):
    """The same step, a convolution of which reads what it can't."""
    graph_def = type(step.graph_def).FromString(step.graph_def.SerializeToString())
    next(n for n in graph_def.node if n.op == "Conv2D").input[0] = "labels"
    return dataclasses.replace(step, graph_def=graph_def)


def test_a_step_that_only_fails_when_split_differs(small):
    flat, properties, decisions = small
    step = build_step(flat, decisions, 2)
    result = compared(flat, properties, decisions, broken(step), {})
    assert result.differing[0].startswith("the split step: only it does not run")


def test_a_step_that_runs_in_its_own_types_only_is_run_in_these(small, monkeypatch):
    flat, properties, decisions = small
    step = build_step(flat, decisions, 2)

    def fails(*_):
        raise ValueError("no such kernel in float64")

    monkeypatch.setattr(wide_session, "to_float64", fails)
    result = compared(flat, properties, decisions, step, {})
    assert "statistic:0 of step 1" in result.compared and not result.differing
    assert result.not_compared  # dropout draws other numbers each time
    assert result.narrow_ops["Conv2D"] == 2  # of the split step
    result = compared(flat, properties, decisions, broken(step), {})
    assert result.differing[0].startswith("the split step: only it does not run")


def test_a_step_that_fails_with_negative_moments_is_run_with_positive_ones():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 6), "x")
        with v1.variable_scope("", use_resource=True):
            w, moment = v1.get_variable("w", (6, 4)), v1.get_variable("moment", (6, 4))
        loss = tf.reduce_mean(tf.square(x @ w), name="loss")
        root = tf.debugging.check_numerics(tf.sqrt(moment), "not a number")
        with tf.control_dependencies([root]):
            train = w.assign_sub(tf.gradients(loss, w)[0] / root, read_value=False)
    feeds = {"x:0": np.ones((BATCH, 6), np.float32)}
    flat = flat_graph(graph, feeds, [loss.name, train.name])
    properties = infer(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0})
    step = build_step(flat, decisions, 2)
    exact = prove_joints(flat, decisions, step, 2).exact
    result = compared(flat, properties, decisions, step, exact)
    assert {"loss:0 of step 2", "variable w"} <= set(result.compared)
    assert not result.why_not and not result.differing


def test_a_run_that_is_ended_was_not_compared(small, monkeypatch):
    flat, properties, decisions = small
    step = build_step(flat, decisions, 2)
    feeds = feeds_of_opened(flat, properties, flat.feeds, 0)
    request = request_of(flat, decisions, step, {}, feeds)
    failures = {
        phase: ChildError("too long", RunsCompared(phase=phase), True)
        for phase in ("running the unsplit step", "running the split step")
    }  # fmt: skip
    for phase, failure in failures.items():
        monkeypatch.setattr(comparing, "ask_child", raising(failure))
        result = compare_runs(request, 1.0, None)
        assert result.why_not == f"{phase}: too long" and not result.differing
    much = ChildError("too much memory", RunsCompared(phase="running the split step"), gave_up=True)
    monkeypatch.setattr(comparing, "ask_child", raising(much))
    assert compare_runs(request, 1.0, None) == RunsCompared(why_not="too much memory")
    crash = ChildError("it was killed", RunsCompared(phase="running the split step"))
    monkeypatch.setattr(comparing, "ask_child", raising(crash))
    assert compare_runs(request, 1.0, None).differing


def raising(error):
    def ask(*_):
        raise error

    return ask


def test_in_float64_every_op_but_random_ones_is(small):
    flat, _, _ = small
    wide = to_float64(flat.graph_def)
    narrow = {n.op for n in wide.graph_def.node if n.attr["T"].type == tf.float32.as_datatype_enum}
    assert narrow == set() and wide.narrow_ops == {}
    assert flat.graph_def == type(flat.graph_def).FromString(flat.graph_def.SerializeToString())


def open_step():
    """A mean loss of any number of entries, which says how many there are, and its gradient."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 3), "x")
        w = tf.constant([[1.0], [2.0], [-1.0]])
        loss = tf.reduce_mean(tf.tanh(x @ w) * tf.cast(tf.shape(x)[0], tf.float32))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    flat = flat_graph(graph, {"x:0": np.zeros((32, 3), np.float32)}, fetches)
    return flat, decide_open(flat, infer_known(flat), 32, {"x:0": 0}, {"x:0": [0]})


def test_a_step_of_any_batch_is_run_with_few_entries():
    flat, decisions = open_step()
    step = build_step(flat, decisions, 3)
    feeds = {"x:0": np.random.default_rng(0).random((32, 3)).astype(np.float32)}
    before = flat.graph_def.SerializeToString(deterministic=True)
    proof = prove_split(flat, decisions, step, 3, ProofLimits(), feeds)
    assert flat.graph_def.SerializeToString(deterministic=True) == before
    assert (proof.run, proof.run_batch, list(proof.differing)) == ("equal", 7, [])
    alone = dataclasses.replace(decisions, following={"x:0": {0: 32}, "edges:0": {1: 32}})
    for kept in (alone, dataclasses.replace(decisions, open_axes={})):
        assert few_entries(kept, 3) == 32


def test_where_so_few_entries_do_not_run_all_do(monkeypatch):
    flat, decisions = open_step()
    asked = []

    def ask(child, request, *limits):
        asked.append(len(request.feeds["x:0"]))
        return RunsCompared(why_not="too few" if asked[-1] < 32 else "", compared=["loss:0"])

    monkeypatch.setattr(comparing, "ask_child", ask)
    proof = prove_split(flat, decisions, build_step(flat, decisions, 2), 2, ProofLimits())
    assert (asked, proof.run, proof.run_batch) == ([5, 32], "equal", 32)


def test_a_step_that_reads_a_table_is_run_with_it_filled(tmp_path):
    class Words(tf.Module):
        def __init__(self):
            super().__init__()
            self.rows = tf.Variable(tf.random.stateless_normal([3, 4], (1, 2)))
            start = tf.lookup.KeyValueTensorInitializer(
                tf.constant([5, 7], tf.int64), tf.constant([1, 2], tf.int64)
            )
            self.table = tf.lookup.StaticHashTable(start, 0)

        @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.int64, name="word")])
        def train_step(self, word):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.gather(self.rows, self.table.lookup(word)) ** 2)
            gradient = tf.convert_to_tensor(tape.gradient(loss, self.rows))
            self.rows.assign_sub(0.1 * gradient)
            return {"loss": loss}

    module = Words()
    tf.saved_model.save(module, str(tmp_path), {"train_step": module.train_step})
    split = split_model(load(tmp_path), 2)
    proof = prove_split(
        split.flat, split.decisions, split.step, 2, ProofLimits(),
        tables=table_start(split.given),
    )  # fmt: skip
    assert proof.run == "equal"
    assert not proof.runs.not_compared
