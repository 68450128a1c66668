"""A step that takes any batch refuses what it can't split, and changes nothing then."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import tensorflow as tf

from graphs.building.shapes import infer_known
from rewrite.pass_base import RewriteError
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.building.build_step import build_step
from rewrite.split.decision import AskedShape
from rewrite.split.prove.structure.check_resharding import prove_joints
from tests.rewrite.split.traced_steps import flat_step

BATCH, FEATURES, NUM_SHARDS = 5, 2, 3


@pytest.fixture(scope="module")
def built():
    """A step of two inputs that counts its runs."""
    count = tf.Variable(0, name="count")

    def step(x, y):
        count.assign_add(1)
        return tf.reduce_mean(tf.tanh(x) * y)

    specs = [tf.TensorSpec((None, FEATURES), tf.float32, name) for name in "xy"]
    flat = flat_step(step, specs, BATCH)
    axes = {"x:0": 0, "y:0": 0}
    open_axes = {tensor: [0] for tensor in axes}
    decisions = decide_open(flat, infer_known(flat), BATCH, axes, open_axes)
    return flat, decisions, build_step(flat, decisions, NUM_SHARDS)


def changed(step, change):
    graph_def = copy.deepcopy(step.graph_def)
    change({node.name: node for node in graph_def.node})
    return dataclasses.replace(step, graph_def=graph_def)


def always(nodes):
    nodes["split/entries"].input[0] = "split/const_0"


def never_for_few(nodes):
    enough = nodes["split/enough"]
    enough.input[1] = enough.input[0]


def never_for_others(nodes):
    same = nodes["split/as_batch"]
    same.input[1] = same.input[0]


def no_condition(nodes):
    asserted = nodes["split/assert"]
    asserted.input[0] = asserted.input[1]


def too_late(nodes):
    count = nodes["AssignAddVariableOp"]
    kept = [name for name in count.input if "split/assert" not in name]
    assert len(kept) < len(count.input)
    count.input[:] = kept


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (always, "it refuses what it was decided for"),
        (never_for_few, "it takes inputs of the shapes {'x:0': .2, 2., 'y:0': .2, 2.}"),
        (never_for_others, "it takes inputs of the shapes {'x:0': .6, 2.}"),
        (no_condition, "it asserts what is no condition"),
        (too_late, "'AssignAddVariableOp' doesn't wait for refusals"),
    ],
)
def test_what_refuses_otherwise_is_found(built, change, why):
    flat, decisions, step = built
    prove_joints(flat, decisions, step, NUM_SHARDS)
    with pytest.raises(RewriteError, match=why):
        prove_joints(flat, decisions, changed(step, change), NUM_SHARDS)


def test_a_shape_that_is_asked_for_and_not_refused_is_found(built):
    flat, decisions, step = built
    asked = {"x:0": AskedShape((BATCH, FEATURES), [1], any_rank=True)}
    decisions = dataclasses.replace(decisions, asked_of_feed=asked)
    prove_joints(flat, decisions, build_step(flat, decisions, NUM_SHARDS), NUM_SHARDS)
    with pytest.raises(RewriteError, match="it takes inputs of the shapes"):
        prove_joints(flat, decisions, step, NUM_SHARDS)
