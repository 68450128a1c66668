"""A Squeeze that names no axes drops a window of a single step, which nobody tried before."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.split.any_batch.data_dependent_ranks import UNSURE_RANK
from rewrite.split.decision import Split
from rewrite.split.prove.written.prove_written import prove_written
from rewrite.split.prove_split import ProofLimits, prove_split
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.split_model_test import _emitted

BATCH, STEPS = 8, 4


def directly(x):
    """Of windows of one step it sums over the batch."""
    return tf.reduce_sum(tf.squeeze(x[:, :, None]), -1)


def less_one(x):
    """The same for windows of two steps."""
    return tf.reduce_sum(tf.squeeze(x[:, 1:]), -1)


def the_first_rows(x):
    """Of a batch of two it squeezes a single row, of all that are larger several."""
    return tf.reduce_mean(tf.tanh(x), 1) + tf.reduce_sum(tf.squeeze(x[:4][1:] * 2.0), -1)[..., None]


def nothing(x):
    """No dimension is single, but in a part of a single entry."""
    return tf.reduce_sum(tf.tanh(tf.squeeze(x)), -1)


def in_a_loop(x):
    """The same, twice."""

    def body(number, y):
        sums = tf.reduce_sum(tf.square(tf.squeeze(y)), -1)
        padded = tf.concat([tf.reshape(sums, [-1]), tf.zeros([tf.shape(y)[0]])], 0)
        return number + 1, tf.ensure_shape(y + padded[: tf.shape(y)[0], None], [None, None])

    return tf.while_loop(lambda number, _: number < 2, body, [0, x])[1]


class Step(tf.Module):
    """A step of gradient descent."""

    def __init__(self, terms):
        super().__init__()
        self.weight, self.terms = tf.Variable(0.5), terms

    def train_step(self, x):
        """One step."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.terms(x * self.weight)))
        self.weight.assign_sub(0.1 * tape.gradient(loss, self.weight))
        return {"loss": loss}


def saved(terms, shape, folder):
    module = Step(terms)
    step = tf.function(module.train_step, input_signature=[tf.TensorSpec(shape, tf.float32, "x")])
    tf.saved_model.save(module, str(folder), signatures={"train_step": step})
    return str(folder)


@pytest.mark.parametrize("terms", [directly, less_one, in_a_loop])
def test_windows_of_a_single_step(terms, tmp_path):
    given = saved(terms, [None, None], tmp_path / "given")
    options = LoadOptions(input_shape={"x": (BATCH, STEPS)})
    split, emitted = _emitted(given, tmp_path / "split", 2, options)
    assert split.decisions.takes_any_batch
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    rng = np.random.default_rng(0)
    single = 1 + (terms is less_one)
    for shape in ((BATCH, STEPS), (6, single), (5, 3), (3, single)):
        x = tf.constant(rng.normal(size=shape), tf.float32)
        wanted = one.signatures["train_step"](x=x)["loss"]
        np.testing.assert_allclose(other.signatures["train_step"](x=x)["loss"], wanted, rtol=1e-4)
    np.testing.assert_allclose(other.weight, one.weight, rtol=1e-4)
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.decisions, split.step, 2, limits)
    assert not proof.differing and proof.run == "equal"
    assert len(split.decisions.unsure_ranks) > 0


@pytest.mark.parametrize("shape", [[None, STEPS], [BATCH, STEPS]])
def test_where_only_the_batch_is_open_a_squeeze_is_split(shape, tmp_path):
    given = saved(directly, shape, tmp_path / "given")
    split = split_model(load(given, LoadOptions(batch_size=BATCH)), 2)
    nodes = split.flat.graph_def.node
    answers = [split.decisions.answer_of_op[n.name] for n in nodes if n.op == "Squeeze"]
    assert answers and all(isinstance(each, Split) for each in answers)


@pytest.mark.parametrize(
    "terms, shape",
    [(nothing, [None, STEPS]), (nothing, [BATCH, STEPS]), (in_a_loop, [BATCH, STEPS])],
)
def test_shards_of_a_single_entry(terms, shape, tmp_path):
    given = saved(terms, shape, tmp_path / "given")
    shards = 3 if shape[0] is None else BATCH
    options = LoadOptions(batch_size=BATCH)
    split, emitted = _emitted(given, tmp_path / "split", shards, options)
    kinds = {node.op for node in split.step.graph_def.node if "shard" in node.name}
    assert ("Identity" if terms is nothing else "While") in {each.removeprefix("Stateless")
                                                             for each in kinds}  # fmt: skip
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    rng = np.random.default_rng(0)
    for batch in (BATCH, 3, 4, 5) if shape[0] is None else (BATCH,):
        x = tf.constant(rng.normal(size=(batch, STEPS)), tf.float32)
        wanted = one.signatures["train_step"](x=x)["loss"]
        np.testing.assert_allclose(other.signatures["train_step"](x=x)["loss"], wanted, rtol=1e-4)
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.decisions, split.step, shards, limits)
    assert not proof.differing and proof.run == "equal"
    prove_written(split.source, split.step, split.outputs)


def test_few_rows_of_a_batch_may_be_one(tmp_path):
    given = saved(the_first_rows, [None, STEPS], tmp_path / "given")
    split, emitted = _emitted(given, tmp_path / "split", 2, LoadOptions(batch_size=BATCH))
    assert len(split.decisions.unsure_ranks) == 1
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    for batch in (BATCH, 2, 3):
        x = tf.constant(np.random.default_rng(0).normal(size=(batch, STEPS)), tf.float32)
        wanted = one.signatures["train_step"](x=x)["loss"]
        np.testing.assert_allclose(other.signatures["train_step"](x=x)["loss"], wanted, rtol=1e-4)


def test_the_reason_is_said(tmp_path):
    given = saved(directly, [None, None], tmp_path / "given")
    options = LoadOptions(input_shape={"x": (BATCH, STEPS)})
    split = split_model(load(given, options), 2)
    (name,) = split.decisions.unsure_ranks
    assert split.decisions.answer_of_op[name].reason == UNSURE_RANK
