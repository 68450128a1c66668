"""Small values that each shard has for itself, so that none travels between shards."""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

from graphs.names import data_inputs
from tests.rewrite.split.run_step import assert_same_steps, flat_graph, split_step

v1 = tf.compat.v1
BATCH = 5


def test_copies_of_different_shards_read_no_constant_together():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 4, 4, 2), "x")
        weight = v1.get_variable("weight", (3, 3, 2, 2), use_resource=True)
        images = tf.nn.conv2d(x, weight, 1, "SAME")
        scale = tf.reshape(tf.constant([0.5]) * 3.0, [1, 1, 1, 1])  # what is folded to a constant
        loss = tf.reduce_sum(tf.tile(scale, [BATCH, 4, 4, 2]) * tf.square(images), name="loss")
        [gradient] = v1.gradients(loss, [weight])
        tf.raw_ops.AssignSubVariableOp(resource=weight.handle, value=gradient, name="train")
    feeds = {"x:0": np.random.default_rng(0).normal(size=(BATCH, 4, 4, 2)).astype(np.float32)}
    flat = flat_graph(graph, feeds, ["loss:0", "train"])
    _, step = split_step(flat, BATCH, 2, {"x:0": 0})
    shards_of: dict[str, set[str]] = {}
    for node in step.graph_def.node:
        shard = re.search(r"/shard_(\d+)", node.name)
        for name in data_inputs(node) if shard else ():
            shards_of.setdefault(name.partition(":")[0], set()).add(shard.group(1))
    shared = {name for name, shards in shards_of.items() if len(shards) > 1}
    types = {node.name: node.op for node in step.graph_def.node}
    assert {types[name] for name in shared} <= {"SplitV", "ReadVariableOp"}
    assert_same_steps(flat, step, feeds, 1e-4, 1e-6)


def test_the_norm_of_a_large_gradient_is_sent_not_the_gradient():
    width = 100
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, width), "x")
        weight = v1.get_variable("weight", (width, width), use_resource=True)
        loss = tf.reduce_sum(tf.tanh(x @ weight), name="loss")
        gradients = v1.gradients(loss, [weight, x])
        clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
        tf.raw_ops.AssignSubVariableOp(resource=weight.handle, value=clipped[0], name="train")
        outputs = [loss.name, "train", tf.identity(clipped[1], "of_entries").name]
    feeds = {"x:0": np.random.default_rng(0).normal(size=(BATCH, width)).astype(np.float32)}
    flat = flat_graph(graph, feeds, outputs)
    _, step = split_step(flat, BATCH, 2, {"x:0": 0})
    sums = {n.name for n in step.graph_def.node if n.op == "AddN" and "MatMul" in n.name}
    readers = [n.name for n in step.graph_def.node for name in data_inputs(n) if name in sums]
    assert len(sums) == 1 and not any("/shard_" in name for name in readers)
    assert_same_steps(flat, step, feeds, 1e-4, 1e-6)
