"""Steps that clip, scale, average or count: outputs and variables after two steps are the same."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from graphs.building.shapes import infer_known
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.decision import Split
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.reading.merge_reads import merge_reads
from tests.rewrite.split.run_step import assert_same_steps
from tests.rewrite.split.traced_steps import flat_step
from tests.rewrite.split.training_steps import (
    CLASSES,
    FEATURES,
    accumulated,
    averaged,
    changed,
    clipped_by_entry,
    counted,
    losses,
    measured,
    of_rows,
    optimised,
    penalised,
    scaled_by_hand,
    two_layers,
)


def checked():
    w = two_layers()

    def step(x, y):
        tf.debugging.assert_equal(tf.shape(x)[0], tf.shape(y)[0])
        tf.debugging.assert_less(y, CLASSES)
        with tf.GradientTape() as tape:
            loss = tf.debugging.check_numerics(tf.reduce_mean(losses(w, x, y)), "loss")
        for variable, gradient in zip(w, tape.gradient(loss, w), strict=True):
            variable.assign_sub(tf.debugging.check_numerics(gradient, "gradient"))
        return loss

    return step


def global_norm(gradients):
    return tf.clip_by_global_norm(gradients, 0.05)[0]


STEPS = {
    "clipped by global norm": changed(global_norm),
    "clipped each": changed(lambda gs: [tf.clip_by_norm(g, 0.05) for g in gs]),
    "clipped by value": changed(lambda gs: [tf.clip_by_value(g, -0.02, 0.02) for g in gs]),
    "signs": changed(lambda gs: [tf.sign(g) * tf.reduce_mean(tf.abs(g)) for g in gs]),
    "centred": changed(lambda gs: [g - tf.reduce_mean(g, 0) for g in gs]),
    "normalised": changed(lambda gs: [g / (tf.norm(g) + 1e-6) for g in gs]),
    "noise": changed(lambda gs: [g + tf.random.stateless_normal(g.shape, [1, 2]) for g in gs]),
    "regularised": penalised(lambda w, x: sum(tf.nn.l2_loss(v) for v in w)),
    "regularised by batch": penalised(
        lambda w, x: tf.nn.l2_loss(w[0]) / tf.cast(tf.shape(x)[0], tf.float32)
    ),
    "activity regularised": penalised(lambda w, x: 0.1 * tf.reduce_sum(tf.abs(x @ w[0]))),
    "scaled by hand": scaled_by_hand,
    "accumulated": accumulated,
    "moving averages": averaged,
    "counted": counted,
    "checked": checked,
    "clipped by entry": clipped_by_entry,
    "rows": of_rows(lambda gs: gs),
    "rows, clipped": of_rows(global_norm),
    "AdamW": optimised(lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1, global_clipnorm=0.1)),
    "EMA": optimised(
        lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2, clipnorm=0.1)
    ),
    "loss scale": optimised(
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    ),
    "accumulating": optimised(lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)),
    "schedule": optimised(
        lambda: keras.optimizers.RMSprop(
            keras.optimizers.schedules.CosineDecay(0.1, 9), centered=True, clipvalue=0.1
        )
    ),
    "tf_keras AdamW": optimised(lambda: tf_keras.optimizers.AdamW(0.1, use_ema=True)),
    "tf_keras Ftrl": optimised(lambda: tf_keras.optimizers.Ftrl(0.1, l1_regularization_strength=1)),
    "metrics": measured(
        lambda: [
            keras.metrics.SparseCategoricalAccuracy(),
            keras.metrics.SparseCategoricalCrossentropy(),
        ]
    ),
    "tf_keras metrics": measured(
        lambda: [
            tf_keras.metrics.SparseTopKCategoricalAccuracy(2),
            tf_keras.metrics.SparseCategoricalCrossentropy(),
        ]
    ),
}


BATCH = 5
TOGETHER = 5
GROUPS = [list(STEPS)[begin : begin + TOGETHER] for begin in range(0, len(STEPS), TOGETHER)]


def traced(names, batch):
    steps = [STEPS[name]() for name in names]

    def together(x, y):
        return [step(x, y) for step in steps]

    specs = [
        tf.TensorSpec((batch, FEATURES), tf.float32, "x"),
        tf.TensorSpec((batch,), tf.int32, "y"),
    ]
    return flat_step(together, specs, BATCH)


def fed(batch):
    rng = np.random.default_rng(batch)
    return {
        "x:0": rng.normal(size=(batch, FEATURES)).astype(np.float32),
        "y:0": rng.integers(0, CLASSES, batch).astype(np.int32),
    }


def assert_same(whole, flat, properties, decisions, num_shards, batches):
    assert sum(isinstance(a, Split) for a in decisions.answer_of_op.values()) > 20
    step = build_step(flat, decisions, num_shards)
    prove_joints(flat, decisions, step, num_shards)
    for graph_def in (whole.graph_def, step.graph_def) if decisions.is_open else ():
        for node in graph_def.node:
            if node.op == "Placeholder":
                node.attr["shape"].shape.dim[0].size = -1
    for batch in batches:
        assert_same_steps(whole, step, fed(batch), variables_rtol=1e-4, variables_atol=1e-5)


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_a_fixed_batch(names):
    whole = traced(names, BATCH)
    flat = merge_reads(whole)
    properties, axes = infer_known(flat), dict.fromkeys(fed(BATCH), 0)
    assert_same(whole, flat, properties, decide(flat, properties, BATCH, axes), 3, [BATCH])


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_any_batch(names):
    whole = traced(names, None)
    flat = merge_reads(whole)
    properties, axes = infer_known(flat), dict.fromkeys(fed(BATCH), 0)
    decisions = decide_open(flat, properties, BATCH, axes, {feed: [0] for feed in axes})
    assert decisions is not None
    assert_same(whole, flat, properties, decisions, 2, [BATCH, 8])
