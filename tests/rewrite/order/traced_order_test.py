"""On workers, in a main graph and in a function body: what an edge holds back starts later."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from graphs.flat_graph import Origin
from rewrite.place_graph import place_graph
from tfplace.measurement.workers import start_workers

v1 = tf.compat.v1
WORKER = "/job:worker/task:1/device:CPU:0"
SIDE = 256


def products():
    """Two products of x side by side, in the main graph and in a function that is called."""

    @tf.function(input_signature=[tf.TensorSpec((SIDE, SIDE))])
    def inner(x):
        # Other products than in the main graph, since Grappler computes equal ones once.
        return tf.matmul(x, x, False, True, name="first"), tf.matmul(
            x, x, True, True, name="second"
        )

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (SIDE, SIDE), name="x")
        tf.matmul(x, x, name="first")
        tf.matmul(x, x, True, name="second")
        one, other = inner(x)
        tf.identity(one, name="one"), tf.identity(other, name="other")
    graph_def = graph_pb2.GraphDef()
    graph_def.CopyFrom(graph.as_graph_def())
    call = next(node for node in graph_def.node if "PartitionedCall" in node.op)
    return graph_def, call.attr["f"].func.name


def spans(graph_def, target):
    """[(start, end)] in microseconds of all products that ran, by the end of their names."""
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with tf.Graph().as_default(), v1.Session(target) as session:
        tf.import_graph_def(graph_def, name="")
        value = np.ones((SIDE, SIDE), np.float32)
        fetches = ["first:0", "second:0", "one:0", "other:0"]
        session.run(fetches, {"x:0": value}, options, metadata)
    return {
        node.node_name: (node.all_start_micros, node.all_start_micros + node.op_end_rel_micros)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if "first" in node.node_name or "second" in node.node_name
    }


@pytest.mark.examples
@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_edges_are_honoured(names):
    graph_def, function = products()
    ends = [[Origin("", name), Origin(function, name, (function,))] for name in names]
    order = list(zip(*ends, strict=True))
    devices = {origin: WORKER for edge in order for origin in edge}
    placed = place_graph(graph_def, devices, order).graph_def
    with start_workers(2, reachable=True) as pool:
        ran = spans(placed, pool.target)
    before, after = ([n for n in ran if n.endswith(name)] for name in names)
    assert len(before) == len(after) == 2
    for one, other in zip(sorted(before), sorted(after), strict=True):
        assert ran[one][1] <= ran[other][0]
