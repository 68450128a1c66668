"""Graphs of TensorFlow 1: loops and conditionals of single ops, and of functions."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.framework import function
from tensorflow.python.ops import control_flow_v2_toggles

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.split.decision import Split
from rewrite.split.prove.written.prove_written import prove_written
from tests.rewrite.split.decide.loops_test import BATCH, whole_loops
from tests.rewrite.split.run_step import assert_same_steps, flat_graph, run, split_model, split_step
from tests.rewrite.split.traced_steps import FEATURES, STEPS, UNITS

v1 = tf.compat.v1


def test_a_loop_of_tensorflow_1_stays_whole():
    with tf.Graph().as_default() as graph, tensorflow_1_loops():
        x = v1.placeholder(tf.float32, (BATCH, FEATURES), "x")
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y) + x), (0, x * 2))
        fetches = [tf.reduce_mean(y).name]
    feeds = {"x:0": np.ones((BATCH, FEATURES), np.float32)}
    flat = flat_graph(graph, feeds, fetches)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert any("enable_control_flow_v2" in why for why in whole_loops(decisions, flat).values())
    assert_same_steps(flat, split, feeds, variables_rtol=0, variables_atol=0)


def test_a_conditional_of_tensorflow_1_stays_whole():
    with tf.Graph().as_default() as graph, tensorflow_1_loops():
        x = v1.placeholder(tf.float32, (BATCH, FEATURES), "x")
        w = v1.get_variable("w", initializer=np.ones((FEATURES, UNITS), np.float32))
        likely = tf.reduce_sum(w) > 0
        y = v1.cond(likely, lambda: x @ w, lambda: tf.zeros([tf.shape(x)[0], UNITS]))
        fetches = [tf.reduce_mean(tf.tanh(y)).name]
    feeds = {"x:0": np.ones((BATCH, FEATURES), np.float32)}
    flat = flat_graph(graph, feeds, fetches)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    reasons = {answer.reason for answer in decisions.answer_of_op.values()
               if not isinstance(answer, Split)}  # fmt: skip
    assert any("enable_control_flow_v2" in reason for reason in reasons)
    assert_same_steps(flat, split, feeds, variables_rtol=0, variables_atol=0)


@pytest.mark.parametrize("asked", ["Size", "Rank"])
def test_a_size_in_a_branch_that_is_not_taken_stays_dead(asked):
    """A constant in its place would be alive, and the Merge take it."""
    with tf.Graph().as_default() as graph, tensorflow_1_loops():
        x = v1.placeholder(tf.float32, (BATCH, FEATURES), "x")
        w = v1.get_variable("w", (FEATURES, UNITS), use_resource=True)
        number = getattr(tf.raw_ops, asked)
        first = v1.cond(
            tf.reduce_sum(w) < -1e6, lambda: number(input=tf.tanh(x)), lambda: tf.constant(-1)
        )
        fetches = [first.name, tf.reduce_mean(tf.tanh(x @ w)).name]
    feeds = {"x:0": np.ones((BATCH, FEATURES), np.float32)}
    flat = flat_graph(graph, feeds, fetches)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert isinstance(decisions.answer_of_op["Tanh"], Split)
    assert run(split.graph_def, split.fetches, feeds)[0][0] == -1
    assert_same_steps(flat, split, feeds, variables_rtol=0, variables_atol=0)


def test_a_dynamic_rnn_with_functions_is_split():
    """As TensorFlow 1 makes it after enable_control_flow_v2(), with entries of other lengths."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, STEPS, FEATURES), "x")
        y, _ = v1.nn.dynamic_rnn(
            tf_keras.layers.GRUCell(UNITS), x, sequence_length=[3, 2, 3, 1, 2], dtype=tf.float32
        )
        loss = tf.reduce_mean(tf.square(y))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = {"x:0": np.random.default_rng(3).normal(size=x.shape).astype(np.float32)}
    flat = flat_graph(graph, feeds, [loss.name, train.name])
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert whole_loops(decisions, flat) == {} and split.num_joins == 0
    assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-5)


@contextlib.contextmanager
def tensorflow_1_loops():
    """Enter, Merge and Exit in the place of While."""
    before = control_flow_v2_toggles.control_flow_v2_enabled()
    control_flow_v2_toggles.disable_control_flow_v2()
    try:
        yield
    finally:
        if before:
            control_flow_v2_toggles.enable_control_flow_v2()


def test_a_gradient_by_a_function_is_no_call():
    @function.Defun(tf.float32, noinline=True)
    def cube(x):
        return x * x * x

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH,), "x")
        fetches = [tf.gradients(cube(x), x)[0].name]
    feeds = {"x:0": np.ones(BATCH, np.float32)}
    flat = flat_graph(graph, feeds, fetches)
    assert "SymbolicGradient" in {node.op for node in flat.graph_def.node}
    _, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert_same_steps(flat, split, feeds, variables_rtol=0, variables_atol=0)


def test_a_loop_of_tensorflow_1_is_written_beside_the_unsplit_one(tmp_path):
    """Both steps have a loop of their own, with the edges by which it goes round."""
    with tf.Graph().as_default() as graph, tensorflow_1_loops():
        x = v1.placeholder(tf.float32, (BATCH, FEATURES), "x")
        w = v1.get_variable(
            "w", initializer=np.full((FEATURES, FEATURES), 0.3, np.float32), use_resource=True
        )
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y @ w)), (0, x @ w))
        loss = tf.reduce_mean(tf.square(y), name="loss")
        train = v1.train.GradientDescentOptimizer(0.5).minimize(loss)
        with tf.control_dependencies([train]):
            tf.identity(loss, name="trained")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(path), LoadOptions(fetch=("trained:0",))), 2)
    prove_written(split.source, split.step, split.outputs)
    losses = []
    for fetch in ("trained:0", split.source.whole_fetches[0]):
        with tf.Graph().as_default() as both, v1.Session(graph=both) as session:
            v1.import_graph_def(split.source.split_graph, name="")
            session.run("w/Assign")
            feeds = {"x:0": np.ones((BATCH, FEATURES), np.float32)}
            losses.append([session.run(fetch, feeds) for _ in range(3)])
    assert losses[0][2] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


@pytest.mark.parametrize("after", [tf.exp, lambda loss, name: tf.multiply(loss, 2.0, name)])
def test_what_a_function_does_besides_is_done_with_what_is_fetched(after, tmp_path):
    @function.Defun(tf.resource, tf.float32)
    def counted(handle, x):
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1.0))
        return tf.reduce_mean(tf.tanh(x))

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, FEATURES), "x")
        count = v1.get_variable("count", initializer=0.0, use_resource=True)
        after(counted(count.handle, x), name="out")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(path), LoadOptions(fetch=("out:0",))), 2)
    prove_written(split.source, split.step, split.outputs)
    for graph_def, fetch in (
        (graph.as_graph_def(), "out:0"),
        (split.source.split_graph, "out:0"),
        (split.source.split_graph, split.source.whole_fetches[0]),
    ):
        with tf.Graph().as_default() as imported, v1.Session(graph=imported) as session:
            v1.import_graph_def(graph_def, name="")
            session.run("count/Assign")
            session.run(fetch, {"x:0": np.ones((BATCH, FEATURES), np.float32)})
            assert session.run("count/Read/ReadVariableOp:0") == 1.0


def conditional(x, count):
    def branch(by):
        y = tf.tanh(x) * by
        count.assign_add(by, read_value=False)
        return y

    return tf.cond(v1.placeholder_with_default(True, ()), lambda: branch(1.0), lambda: branch(2.0))


def loop(x, count):
    def body(i, y):
        count.assign_add(0.5, read_value=False)
        return i + 1, tf.tanh(y)

    return tf.while_loop(lambda i, _: i < 2, body, (0, x))[1]


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("reads", [lambda y: tf.cast(tf.shape(y)[0], tf.float32), tf.reduce_mean])
@pytest.mark.parametrize("unit", [conditional, loop])
def test_what_a_function_does_besides_is_done_once(unit, reads, is_listed, tmp_path):
    """It is run as a function: so are its ops with effects, though no result is made of them."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, FEATURES), "x")
        count = v1.get_variable("count", initializer=0.0, use_resource=True)
        w = v1.get_variable("w", initializer=np.eye(FEATURES, dtype=np.float32), use_resource=True)
        y = unit(x, count)
        tf.add(tf.reduce_mean(tf.tanh(x @ w)), reads(y), "loss")
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        if node.op in ("If", "While"):
            node.attr["_lower_using_switch_merge"].b = False
    for each in graph_def.library.function if not is_listed else ():
        each.control_ret.clear()
        each.signature.control_output[:] = []
    path = tmp_path / "model.pb"
    path.write_bytes(graph_def.SerializeToString())
    split = split_model(load(str(path), LoadOptions(fetch=("loss:0",), batch_size=BATCH)), 2)
    assert isinstance(split.decisions.answer_of_op["Tanh"], Split)
    prove_written(split.source, split.step, split.outputs)
    found = []
    for written, fetch in ((graph_def, "loss:0"), (split.source.split_graph, "loss:0"),
                           (split.source.split_graph, split.source.whole_fetches[0])):  # fmt: skip
        with tf.Graph().as_default() as both, v1.Session(graph=both) as session:
            v1.import_graph_def(written, name="")
            session.run(["count/Assign", "w/Assign"])
            loss = session.run(fetch, {"x:0": np.ones((BATCH, FEATURES), np.float32)})
            found.append((loss, session.run("count/Read/ReadVariableOp:0")))
    assert found[0][1] == 1.0
    np.testing.assert_allclose(found[1:], found[:1] * 2, rtol=1e-6)
