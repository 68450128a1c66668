"""Conditionals whose branches keep something for their gradient, in Optionals: split, or why not.

Batches are of five entries, which neither two nor three shards divide.
"""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from rewrite.pass_base import RewriteError
from rewrite.split.decide import branches
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_case import CaseOutcome
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.rules.list_elements import ListElements
from rewrite.split.states import WHOLE, Optioned, Partial, Sharded
from tests.rewrite.split.decide.loops_test import whole_loops
from tests.rewrite.split.run_step import assert_same_steps, run, split_open_step, split_step
from tests.rewrite.split.traced_steps import flat_step

raw = tf.raw_ops
BATCH, FEATURES = 5, 2


def in_loop(y, w):
    return tf.while_loop(lambda i, _: i < 3, lambda i, z: (i + 1, tf.tanh(z @ w)), (0, y))[1]


CONDITIONALS = {
    "one activation or another": lambda x, p, w, v: (
        lambda h: tf.cond(p, lambda: tf.nn.relu(h), lambda: tf.tanh(h))
    )(x @ w),
    "a predicate of the weights": lambda x, p, w, v: tf.cond(
        tf.reduce_sum(w * v) > 0, lambda: tf.tanh(tf.nn.relu(x @ w)), lambda: tf.tanh(x)
    ),
    "a predicate of the batch": lambda x, p, w, v: tf.cond(
        tf.reduce_sum(x) > 0, lambda: tf.tanh(x @ w), lambda: tf.sin(x * v)
    ),
    "variables read in branches": lambda x, p, w, v: tf.cond(
        p, lambda: tf.tanh(x @ w), lambda: tf.sin(tf.exp(x) * v)
    ),
    "a layer that is left out": lambda x, p, w, v: tf.cond(
        p, lambda: tf.sigmoid(tf.tanh(x @ w) * v) + x, lambda: x
    ),
    "sums over the batch": lambda x, p, w, v: tf.cond(
        p,
        lambda: tf.reduce_mean(tf.tanh(x @ w)) * tf.reduce_sum(v) * 3.0,
        lambda: tf.reduce_mean(tf.abs(tf.sin(x) * v)),
    ),
    "other axes": lambda x, p, w, v: tf.transpose(
        tf.cond(p, lambda: tf.transpose(tf.tanh(tf.transpose(x @ w))), lambda: tf.sin(x * v) * v)
    ),
    "a conditional in a branch": lambda x, p, w, v: tf.cond(
        p,
        lambda: 2.0 * tf.cond(
            tf.reduce_sum(tf.tanh(w)) > 0.3, lambda: tf.tanh(x @ w), lambda: tf.sigmoid(x * v)
        ),
        lambda: tf.exp(-x * v),
    ),
    "the same predicate in a branch": lambda x, p, w, v: tf.cond(
        p,
        lambda: 2.0 * tf.cond(p, lambda: tf.tanh(tf.sin(x) @ w), lambda: tf.sigmoid(x * v)),
        lambda: tf.exp(-x * v),
    ),
    "the same predicate later": lambda x, p, w, v: (
        lambda y: tf.cond(p, lambda: tf.tanh(y @ w), lambda: tf.sin(y) * tf.cos(v))
    )(tf.cond(p, lambda: tf.tanh(tf.sin(x) * v), lambda: tf.tanh(x @ w))),
    "a loop in a branch": lambda x, p, w, v: tf.cond(p, lambda: in_loop(x, w), lambda: x * v),
    "three branches": lambda x, p, w, v: tf.switch_case(
        tf.cast(p, tf.int32) + 1,
        [lambda: x @ w, lambda: tf.sin(x @ w) * tf.cos(x * v), lambda: tf.nn.relu(x * v)],
    ),
    "sizes": lambda x, p, w, v: tf.cond(
        p,
        lambda: tf.reshape(tf.tanh(tf.reshape(tf.tanh(x @ w), [-1])), tf.shape(x)),
        lambda: x * tf.cast(tf.shape(tf.sin(x))[0], tf.float32) + v,
    ),
}  # fmt: skip


def conditional_step(name, batch=BATCH):
    """A training step of a model y = CONDITIONALS[name](x, predicate, matrix, vector)."""
    matrix = tf.Variable(tf.ones((FEATURES, FEATURES)), name="matrix")
    vector = tf.Variable(tf.ones(FEATURES), name="vector")

    def step(x, predicate):
        with tf.GradientTape() as tape:
            y = CONDITIONALS[name](x, predicate, matrix, vector)
            loss = tf.reduce_mean(tf.square(y))
        for variable, gradient in zip(
            (matrix, vector), tape.gradient(loss, (matrix, vector)), strict=True
        ):
            if gradient is not None:
                variable.assign_sub(0.1 * gradient)
        return loss, y

    return closed_step(step, batch)


def closed_step(step, batch=BATCH):
    specs = [
        tf.TensorSpec((batch, FEATURES), tf.float32, "x"),
        tf.TensorSpec((), tf.bool, "predicate"),
    ]
    return flat_step(step, specs, BATCH, open_conditionals=False)


def feeds_of(flat, batch=BATCH):
    """Inputs for either branch."""
    rng = np.random.default_rng(4)
    for predicate in (True, False):
        feeds = {
            "x:0": rng.normal(size=(batch, FEATURES)).astype(np.float32),
            "predicate:0": np.array(predicate),
        }
        yield {name: value for name, value in feeds.items() if name[:-2] in flat.nodes}


@pytest.mark.parametrize("num_shards", [2, 3])
@pytest.mark.parametrize("name", CONDITIONALS)
def test_conditionals_with_their_gradients(name, num_shards):
    flat = conditional_step(name)
    decisions, split = split_step(flat, BATCH, num_shards, {"x:0": 0})
    assert len(flat.unit_of_node) > 1
    assert whole_loops(decisions, flat) == {}
    for feeds in feeds_of(flat):
        assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-6)
    prove_joints(flat, decisions, split, num_shards)


@pytest.mark.parametrize("name", CONDITIONALS)
def test_any_batch_size(name):
    flat = conditional_step(name, None)
    decisions, split = split_open_step(flat, BATCH, 3, {"x:0": 0})
    assert whole_loops(decisions, flat) == {}
    for batch in (3, 8):
        for feeds in feeds_of(flat, batch):
            assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-6)


def test_shards_of_one_size_have_branches_of_their_own():
    """What shares a function shares a device, for an op of a FunctionDef has only one."""
    flat = conditional_step("a conditional in a branch", 4)
    _, split = split_step(flat, 4, 2, {"x:0": 0})
    bodies = [split.graph_def.node, *(each.node_def for each in split.graph_def.library.function)]
    run_by = [node.attr["then_branch"].func.name
              for nodes in bodies for node in nodes if "then_branch" in node.attr]  # fmt: skip
    own = [name for name in run_by if "_shard_" in name]
    assert len(own) == len(set(own)) >= 4


def test_every_op_of_an_optional_is_proven():
    found = set()
    for name in CONDITIONALS:
        flat = conditional_step(name)
        decisions, _ = split_step(flat, BATCH, 2, {"x:0": 0})
        cases = [c for c in op_cases(flat, decisions, 2) if "Optional" in c.node.op]
        assert outcomes_of(cases) == [CaseOutcome()] * len(cases)
        found |= {(case.node.op, type(case.outputs[0])) for case in cases}
        for case in cases:
            if case.shapes[0] == (BATCH, FEATURES):
                wrong = dataclasses.replace(case, outputs=(WHOLE,))
                assert outcomes_of([wrong])[0].differs
    assert found >= {(op, kind) for op in ("OptionalFromValue", "OptionalGetValue")
                     for kind in (Sharded, Partial)}  # fmt: skip


def dense_or_not(library):
    """A layer of Keras that a number of the step's chooses, and whose weights its branch reads."""

    class Chosen(library.layers.Layer):  # type: ignore[name-defined]
        def build(self, shape):
            self.dense = library.layers.Dense(shape[-1], "tanh")
            self.dense.build(shape)

        def call(self, x, training):
            return tf.cond(training, lambda: x + self.dense(x) * 2.0, lambda: tf.nn.softmax(x))

    return Chosen()


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_layers_of_keras(library):
    first, chosen, last = library.layers.Dense(3, "relu"), dense_or_not(library), None
    first.build((None, FEATURES))
    chosen.build((None, 3))
    last = library.layers.Dense(1)
    last.build((None, 3))
    weights = [w for each in (first, chosen.dense, last) for w in each.trainable_variables]
    optimizer = library.optimizers.Adam(0.01)
    optimizer.build(weights)

    def step(x, predicate):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(last(chosen(first(x), training=predicate))))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    flat = closed_step(step)
    decisions, split = split_step(flat, BATCH, 3, {"x:0": 0})
    assert whole_loops(decisions, flat) == {}
    assert split.num_joins == 0
    for feeds in feeds_of(flat):
        assert_same_steps(flat, split, feeds, variables_rtol=1e-3, variables_atol=1e-5)


REFUSED = {
    "statistics of the batch": lambda x, p, w: tf.cond(
        p, lambda: tf.tanh(x @ w) - tf.reduce_mean(x @ w, 0), lambda: tf.tanh(x)
    ),
    "random numbers": lambda x, p, w: tf.cond(
        p, lambda: tf.tanh(x @ w) + 0.0 * tf.random.normal((BATCH, FEATURES)), lambda: tf.tanh(x)
    ),
    "lists of Optionals": lambda x, p, w: tf.while_loop(
        lambda i, _: i < 3,
        lambda i, y: (i + 1, tf.cond(i > 1, lambda: tf.tanh(y @ w), lambda: tf.sin(y))),
        (0, x),
    )[1],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_whole_is_right(name):
    matrix = tf.Variable(tf.ones((FEATURES, FEATURES)), name="matrix")

    def step(x, predicate):
        with tf.GradientTape() as tape:
            y = REFUSED[name](x, predicate, matrix)
            loss = tf.reduce_mean(tf.square(y))
        matrix.assign_sub(0.1 * tape.gradient(loss, matrix))
        return loss, y

    flat = closed_step(step)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert whole_loops(decisions, flat)
    for feeds in feeds_of(flat):
        assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-6)


def kept(value):
    return raw.OptionalFromValue(components=[value])


def taken(optional, shape=(None, FEATURES)):
    [value] = raw.OptionalGetValue(
        optional=optional, output_types=[tf.float32], output_shapes=[tf.TensorShape(shape)]
    )
    return value


def mixed(x, predicate):
    """An Optional of what is cut, or of what isn't, as the predicate says."""
    return tf.cond(predicate, lambda: kept(x * 2.0), lambda: kept(tf.ones((BATCH, FEATURES))))


OPTIONALS = {
    "made in a branch of the same predicate": (False, lambda x, p: tf.cond(
        p, lambda: taken(mixed(x, p)) + x, lambda: taken(mixed(x, p)) * x)),
    "taken by branches of the same predicate": (True, lambda x, p: (
        lambda o: tf.cond(p, lambda: taken(o) + x, lambda: taken(o) * x))(mixed(x, p))),
    "the same predicate by another name": (True, lambda x, p: (
        lambda o: tf.cond(tf.identity(p), lambda: taken(o) + x, lambda: taken(o) * x))(
            mixed(x, p))),
    "another predicate": (False, lambda x, p: (
        lambda o: tf.cond(
            tf.logical_not(p), lambda: taken(o) + x, lambda: taken(o) * x))(mixed(x, p))),
    "an If and a Case": (False, lambda x, p: (
        lambda o: tf.switch_case(
            tf.cast(p, tf.int32), [lambda: taken(o) + x, lambda: taken(o) * x]))(mixed(x, p))),
    "no conditional": (False, lambda x, p: taken(mixed(x, p)) + x),
    "handed on by a loop": (False, lambda x, p: tf.while_loop(
        lambda i, *_: i < 2,
        lambda i, o, y: (i + 1, mixed(y, tf.equal(i, 0)), tf.cond(
            tf.equal(i, 0), lambda: taken(o) + y, lambda: taken(o) * y)),
        (0, mixed(x, p), x))[2]),
    "what it holds is known to be cut alike": (True, lambda x, p: taken(
        tf.cond(p, lambda: kept(x * 2.0), lambda: kept(tf.tanh(x)))) + x),
    "does it hold anything": (True, lambda x, p: x * tf.cast(
        raw.OptionalHasValue(optional=kept(x)), tf.float32)),
    "a whole one": (True, lambda x, p: x + taken(kept(tf.ones(FEATURES)), (FEATURES,))),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONALS)
def test_optionals_by_hand(name):
    is_split, step = OPTIONALS[name]
    flat = closed_step(step)
    decisions, split = split_step(flat, BATCH, 3, {"x:0": 0})
    assert (whole_loops(decisions, flat) == {}) == is_split
    for feeds in feeds_of(flat):
        whole, parts = (run(each.graph_def, each.fetches, feeds)[0] for each in (flat, split))
        np.testing.assert_allclose(parts[0], whole[0], rtol=1e-6)
    prove_joints(flat, decisions, split, 3)


def test_a_branch_of_another_predicate_is_found(monkeypatch):
    def whatever_is_asked(facts, node, key, tensor):
        source, output = facts.origin(tensor)
        branches = source.returned.get(output.partition(":")[0])
        index = int(output.partition(":")[2])
        return branches and (
            branches[key].facts, branches[key].tensors[index], branches[key].states[index]
        )  # fmt: skip

    flat = closed_step(OPTIONALS["another predicate"][1])
    monkeypatch.setattr(branches, "taken_with", whatever_is_asked)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert whole_loops(decisions, flat) == {}
    with pytest.raises(RewriteError, match="what was decided of its functions disagrees"):
        prove_joints(flat, decisions, split, 2)


def test_an_optional_that_something_needs_whole_is_whole():
    elements = ListElements()
    made = elements.optional("optional", Sharded(0))
    assert made == Optioned(Sharded(0))
    assert not elements.learn()
    elements.optional("optional", Sharded(0))
    elements.fail(made)
    assert elements.learn()
    assert elements.optional("optional", Sharded(0)) == WHOLE
    assert not elements.learn()
