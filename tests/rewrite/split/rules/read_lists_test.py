"""Elements of lists that are read outside of loops, in steps of any batch size."""

import numpy as np
import pytest
import tensorflow as tf

from rewrite.split.prove_split import ProofLimits, prove_split
from tests.rewrite.split.split_model_test import _emitted

STEPS = 4
X, Y = tf.TensorSpec([None, STEPS, 3], name="x"), tf.TensorSpec([None], tf.int64, name="y")


class Reader(tf.Module):
    """A classifier of what it reads of a list."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        rng = np.random.default_rng(0)
        self.w, self.o = (
            tf.Variable(rng.normal(size=s), dtype=tf.float32) for s in [(3, 5), (5, 5)]
        )

    def read(self, rows):
        """One element, or all of them, one after another."""
        size = 0 if self.kind == "grows" else STEPS
        array = tf.TensorArray(tf.float32, size, self.kind == "grows", clear_after_read=False)
        if self.kind == "written":
            for step in range(STEPS):
                array = array.write(step, rows[step])
        else:
            array = array.unstack(rows)
        if self.kind == "gathered":
            return tf.reduce_sum(array.gather([0, 2]), 0)
        if self.kind == "decoder":
            state = array.read(0)
            for step in range(1, STEPS):
                state = tf.tanh(state @ self.o + array.read(step))
            return state
        return array.read(2)

    @tf.function(input_signature=[X, Y])
    def train_step(self, x, y):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            logits = self.read(tf.transpose(tf.tanh(x @ self.w), [1, 0, 2])) @ self.o
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(each)
        weights = (self.w, self.o)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


@pytest.mark.parametrize("kind", ["unstacked", "written", "grows", "gathered", "decoder"])
def test_a_list_may_not_know_its_batch(kind, tmp_path):
    given = str(tmp_path / "given")
    model = Reader(kind)
    tf.saved_model.save(model, given, signatures={"train_step": model.train_step})
    split, emitted = _emitted(given, tmp_path / "split", 2)
    limits = ProofLimits(op_seconds=0.0, run_seconds=0.0)
    assert not prove_split(split.flat, split.decisions, split.step, 2, limits).differing
    rng, losses = np.random.default_rng(1), {}
    batches = [(rng.normal(size=(n, STEPS, 3)), rng.integers(0, 5, n)) for n in (2, 5, 32)]
    for path in (given, emitted):
        step = tf.saved_model.load(path).signatures["train_step"]
        losses[path] = [
            float(step(x=tf.constant(x, tf.float32), y=tf.constant(y))["loss"]) for x, y in batches
        ]
    np.testing.assert_allclose(losses[emitted], losses[given], rtol=1e-5)
