"""Large sums are added shard after shard where that was decided, and stay so in what runs."""

import dataclasses

import numpy as np
import tensorflow as tf

from graphs.building.shapes import infer_known
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.prove.structure.check_resharding import prove_joints
from tests.rewrite.split.rules.run_rule import floats
from tests.rewrite.split.run_step import flat_graph

v1 = tf.compat.v1
BATCH, SHARDS, WIDTH = 8, 4, 100
X, Y = floats(BATCH, WIDTH), floats(BATCH, WIDTH) + 1.0


def split_gradient():
    """A weight gradient and a small one, split into four shards that are added in turn."""
    feeds = {"x:0": X, "y:0": Y}
    with tf.Graph().as_default() as graph:
        x, y = (v1.placeholder(tf.float32, a.shape, n) for a, n in ((X, "x"), (Y, "y")))
        large, small = tf.matmul(x, y, transpose_a=True), tf.reduce_sum(x, 0)
    flat = flat_graph(graph, feeds, [large.name, small.name])
    properties = infer_known(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0, "y:0": 0})
    decisions = dataclasses.replace(decisions, sums_in_turn=True)
    return flat, properties, decisions, build_step(flat, decisions, SHARDS)


def test_only_large_sums_are_chains_and_they_are_proven():
    flat, _, decisions, step = split_gradient()
    types = [node.op for node in step.graph_def.node]
    assert (types.count("AddV2"), types.count("AddN")) == (SHARDS - 1, 1)
    assert prove_joints(flat, decisions, step, SHARDS).sums == step.num_sums == 2


def test_tensorflow_runs_them_as_a_chain():
    _, _, _, step = split_gradient()
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(step.graph_def, name="")
        options, ran = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        with v1.Session(graph=graph) as session:
            found = session.run(list(step.fetches), {"x:0": X, "y:0": Y}, options, ran)
    nodes = [node for part in ran.partition_graphs for node in part.node]
    assert sum(node.op == "AddV2" for node in nodes) == SHARDS - 1
    assert all(len(node.input) <= 2 for node in nodes if "MatMul/summed" in node.name)
    np.testing.assert_allclose(found[0], X.T @ Y, rtol=1e-5, atol=1e-5)
