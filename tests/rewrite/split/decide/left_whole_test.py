"""Ops that are left whole though they could be split: the step trains the same."""

import random

import numpy as np
import pytest
import tensorflow as tf

from graphs import zoo
from graphs.building.flatten import flatten
from graphs.building.shapes import infer_known
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.source_model import TensorSpec
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.analysis import LEFT_WHOLE, may_be_left_whole
from rewrite.split.decide.decide import decide
from rewrite.split.decision import Split, StayWhole
from rewrite.split.summary import summary_of
from tests.rewrite.split.run_step import assert_same_steps, flat_graph, random_feeds, run

v1 = tf.compat.v1
BATCH = 5
STEPS = [("cifar10", 2, 0.5), ("cifar10", 3, 0.1), ("rnnlm", 3, 0.5), ("dlrm", 2, 0.8)]


def _able(decisions):
    return [name for name, answer in decisions.answer_of_op.items() if may_be_left_whole(answer)]


@pytest.mark.parametrize(("name", "num_shards", "share"), STEPS)
def test_whatever_is_left_whole_two_steps_are_the_same(name, num_shards, share, tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build(name, size="tiny", batch_size=BATCH), path)
    source = load(path, LoadOptions())
    step = flatten(source.graph_def, source.feeds, source.fetches)
    feeds = random_feeds(step)
    axes = dict.fromkeys(feeds, 0)
    flat, properties = decompose_norms(step, infer_known(step), BATCH, axes)
    able = _able(decide(flat, properties, BATCH, axes))
    chosen = {op for op in able if random.Random(f"{op}{share}").random() < share}
    decisions = decide(flat, properties, BATCH, axes, left_whole=chosen)
    assert decisions.num_left_whole > 3
    split = build_step(flat, decisions, num_shards)
    assert_same_steps(step, split, feeds, variables_rtol=1e-3, variables_atol=2e-5)


def _two_layers(batch):
    """A step of two layers: what is fetched, and inputs for a batch size."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (batch, 4), "x")
        first, second = tf.random.stateless_normal([2, 4, 4], (1, 2)), tf.eye(4)
        hidden = tf.nn.relu(tf.matmul(x, first[0], name="first"), name="hidden")
        logits = tf.matmul(hidden, second, name="second")
        loss = tf.reduce_mean(tf.tanh(logits), name="loss")
        return graph, [loss.name, tf.gradients(loss, x)[0].name]


def test_what_a_whole_op_makes_is_cut_for_copies_and_what_it_reads_is_joined():
    graph, fetches = _two_layers(6)
    feeds = {"x:0": np.ones((6, 4), np.float32)}
    flat = flat_graph(graph, feeds, fetches)
    properties = infer_known(flat)
    decisions = decide(flat, properties, 6, {"x:0": 0}, left_whole={"hidden", "absent"})
    assert decisions.num_left_whole == 1
    split = build_step(flat, decisions, 3)
    names = {node.name for node in split.graph_def.node}
    assert "hidden" in names and "hidden/shard_0" not in names
    assert {"first/shard_0", "first/joined", "hidden/cut", "second/shard_2"} <= names
    reasons = [each.reason for each in summary_of(flat, decisions, split).whole_because]
    assert LEFT_WHOLE in reasons
    assert_same_steps(flat, split, feeds, variables_rtol=1e-5, variables_atol=1e-6)


def test_a_step_of_any_batch_size_cuts_what_comes():
    graph, fetches = _two_layers(None)
    feeds = [TensorSpec("x:0", "float32", (6, 4))]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    decisions = decide_open(
        flat, infer_known(flat), 6, {"x:0": 0}, {"x:0": [0]}, left_whole={"hidden", "second"}
    )
    assert decisions is not None and decisions.takes_any_batch
    assert decisions.num_left_whole == 2
    split = build_step(flat, decisions, 2)
    given = {"x:0": np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)}
    whole, _ = run(flat.graph_def, flat.fetches, given)
    parts, _ = run(split.graph_def, split.fetches, given)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def test_what_runs_functions_or_holds_lists_is_not_left_whole():
    assert not may_be_left_whole(StayWhole("a reason"))
    assert not may_be_left_whole(Split((), (), bodies={"body": object()}))
