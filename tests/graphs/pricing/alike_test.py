"""Copies of one op are priced once: the same figures as when all of them are asked about."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.flat_graph import FlatGraph, Origin
from graphs.pricing import grappler_costs
from graphs.pricing.alike import first_alike, without_alike
from graphs.pricing.node_work import node_work

v1 = tf.compat.v1


def _split_step(sizes=(2, 2, 1), frames=False):
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
        if frames:
            tf.raw_ops.Enter(data=w, frame_name="frame", name="enter")
    graph_def = graph.as_graph_def()
    return FlatGraph(graph_def, [Origin("", n.name) for n in graph_def.node], (), (), {}, {})


def _names(graph_def):
    return [node.name for node in graph_def.node]


def test_the_first_copy_of_its_size_stands_for_the_others():
    flat = _split_step()
    first = first_alike(flat.graph_def, shapes.infer(flat))
    names = _names(flat.graph_def)
    stands = {name: names[number] for name, number in zip(names, first, strict=True)}
    assert stands["y/shard_1"] == "y/shard_0" and stands["y/shard_2"] == "y/shard_2"
    assert stands["a/b/shard_1"] == "a/b/shard_0" and stands["x/cut"] == "x/cut"
    assert stands["shape/shard_2"] == "shape/shard_0"  # equal constants of unequal shards
    kept = without_alike(flat.graph_def, first)
    node = {each.name: each for each in kept.node}
    assert list(node["g/summed"].input) == ["g/shard_0", "g/shard_0:0", "g/shard_2"]
    assert list(node["r/shard_2"].input) == ["y/shard_2", "shape/shard_0:0"]
    assert "y/shard_1" not in node and len(kept.node) < len(flat.graph_def.node)


@pytest.mark.parametrize("sizes", [(2, 2, 1), (2, 2, 2, 2)])
def test_prices_are_those_of_all_copies(sizes):
    flat = _split_step(sizes)
    properties = shapes.infer(flat)
    everything = grappler_costs.estimate(flat, properties)
    asked = node_work(flat, properties)
    assert not np.isnan(everything.flops).all()
    np.testing.assert_array_equal(asked.work.flops, everything.flops)
    np.testing.assert_array_equal(asked.work.memory_bytes, everything.memory_bytes)
    launched = dict(zip(_names(flat.graph_def), asked.launches["GPU"], strict=True))
    assert launched["y/shard_1"] and launched["y/shard_0"] and not launched["w"]


def test_nothing_is_left_out_of_frames():
    flat = _split_step(frames=True)
    first = first_alike(flat.graph_def, shapes.infer(flat))
    assert first.tolist() == list(range(len(first)))


def test_where_grappler_refuses_the_smaller_graph_all_copies_are_asked_about(monkeypatch):
    flat = _split_step()
    properties, asked, run = shapes.infer(flat), [], grappler_costs.run_grappler

    def refuses_once(request):
        asked.append(request)
        return {"error": "a cycle"} if len(asked) == 1 else run(request)

    monkeypatch.setattr(grappler_costs, "run_grappler", refuses_once)
    work = grappler_costs.estimate(flat, properties, first_alike(flat.graph_def, properties))
    assert len(asked) == 2 and not np.isnan(work.flops).all() and work.notes == []
