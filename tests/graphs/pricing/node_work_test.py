"""Nodes of one kind are priced once: the same figures as when all of them are asked about."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.flat_graph import FlatGraph, Origin
from graphs.pricing import grappler_costs
from graphs.pricing.node_work import node_work

v1 = tf.compat.v1


def _split_step(sizes):
    """A product of a batch in shards of these sizes, and the sum of its gradients."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [sum(sizes), 8], name="x")
        w = v1.placeholder(tf.float32, [8, 4], name="w")
        parts = tf.split(x, sizes, name="x/cut")
        terms = []
        for shard, part in enumerate(parts):
            end = f"/shard_{shard}"
            shape = tf.constant([-1, 4], name=f"shape{end}")
            y = tf.raw_ops.MatMul(a=part, b=w, name=f"y{end}")
            with tf.control_dependencies([y]):
                y = tf.raw_ops.Relu(features=tf.reshape(y, shape, name=f"r{end}"), name=f"a/b{end}")
            grad = tf.raw_ops.MatMul(a=part, b=y, transpose_a=True, name=f"g{end}")
            terms.append(grad)
        tf.raw_ops.AddN(inputs=terms, name="g/summed")
    graph_def = graph.as_graph_def()
    return FlatGraph(graph_def, [Origin("", n.name) for n in graph_def.node], (), (), {}, {})


def _names(graph_def):
    return [node.name for node in graph_def.node]


@pytest.mark.parametrize("sizes", [(2, 2, 1), (2, 2, 2, 2)])
def test_prices_are_those_of_all_copies(sizes):
    flat = _split_step(sizes)
    properties = shapes.infer(flat)
    assert len(set(properties.first.tolist())) < len(flat.graph_def.node)
    everything = grappler_costs.estimate(flat, dataclasses.replace(properties, first=None))
    asked = node_work(flat, properties)
    assert not np.isnan(everything.flops).all()
    np.testing.assert_array_equal(asked.work.flops, everything.flops)
    np.testing.assert_array_equal(asked.work.memory_bytes, everything.memory_bytes)
    launched = dict(zip(_names(flat.graph_def), asked.launches["GPU"], strict=True))
    assert launched["y/shard_1"] and launched["y/shard_0"] and not launched["w"]
