"""Prices: the formula on known work, and Grappler's figures behind it."""

import os

import numpy as np
import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.cluster import Cluster, Device
from graphs.clusters.named_clusters import named
from graphs.flat_graph import FlatGraph, Origin
from graphs.function_library import library_of
from graphs.pricing import costs, grappler_costs, node_work
from graphs.pricing.costs import price
from graphs.pricing.kernel_classes import rates_of
from graphs.pricing.kernels import kernel_table
from graphs.source_model import TensorSpec
from tests.graphs.small_graphs import matmul_graph

v1 = tf.compat.v1

# 1 core at 1 MHz: 32 flops per microsecond; 1 byte per microsecond.
SLOW_CPU = Device("/device:CPU:0", "CPU", 1 << 30, frequency_mhz=1, bandwidth_bytes_per_second=1e6)
# 1 multiprocessor of 64 lanes at 1 MHz: 128 flops per microsecond, half of which is reached.
SLOW_GPU = Device(
    "/device:GPU:0",
    "GPU",
    1 << 30,
    efficiency=0.5,
    architecture="7.0",
    frequency_mhz=1,
    bandwidth_bytes_per_second=1e6,
)
PAIR = Cluster("pair", "duplex", (SLOW_CPU, SLOW_GPU), np.zeros((2, 2)), np.ones((2, 2)))


def _flat(graph_def, feeds=(), units=None):
    units = units or {}
    origins = [Origin("", node.name) for node in graph_def.node]
    return FlatGraph(graph_def, origins, feeds, (), units, dict.fromkeys(units.values(), "a loop"))


def _price(flat, cluster=PAIR):
    properties = shapes.infer(flat)
    op_of_node = np.arange(len(flat.graph_def.node), dtype=np.int32)
    return price(flat, properties, op_of_node, cluster)


def _matmul_graph(batch_size=64, inner=16, width=32):
    feeds = [TensorSpec("x:0", "float32", (batch_size, inner))]
    return _flat(matmul_graph(inner, width), feeds)


def test_seconds_of_a_product():
    priced = _price(_matmul_graph())
    flops, moved = 2 * 64 * 16 * 32, 4 * (64 * 16 + 16 * 32 + 64 * 32)
    assert priced.source == "analytic"
    assert priced.op_seconds.shape == (5, 2)
    np.testing.assert_allclose(
        priced.op_seconds[3], [flops / 32e6 + moved / 1e6, (flops / 128e6 + moved / 1e6) / 0.5]
    )
    np.testing.assert_array_equal(priced.op_seconds[:3], np.zeros((3, 2)))
    assert np.isfinite(priced.op_seconds[4, 0])
    assert priced.op_seconds[4, 1] == np.inf
    assert priced.covered.all()


def test_small_kernels_take_a_launch_on_a_gpu_and_host_values_do_not():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], name="x")
        n = v1.placeholder(tf.int32, [2], name="n")
        tf.raw_ops.Neg(x=x, name="kernel")
        tf.raw_ops.FloorMod(x=n, y=n, name="host")
        tf.raw_ops.Identity(input=x, name="buffer")
    seconds = _price(_flat(graph.as_graph_def()), named("k80x2")).op_seconds
    launch = rates_of("3.7", "fp32").op_seconds
    assert seconds[2, 1] == seconds[2, 2] == launch
    assert 0 < seconds[2, 0] < launch
    assert 0 < seconds[3, 1] < launch
    assert (seconds[4] == 0).all()


def test_grapplers_own_price_of_a_k80_is_reproduced():
    """Flops and bytes over a K80's rates against Grappler's K80 itself, to its microsecond."""
    from tensorflow.core.grappler.costs import op_performance_data_pb2
    from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2

    flat = _matmul_graph(2560, 2048, 10_000)
    gpu = named("k80x2").devices[1]
    properties = device_properties_pb2.DeviceProperties(
        type="GPU", num_cores=gpu.cores, frequency=gpu.frequency_mhz, bandwidth=240 * 10**6
    )
    properties.environment["architecture"] = gpu.architecture
    graph_def = shapes.with_feeds_as_placeholders(flat.graph_def, flat.feeds)
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph_def)
    meta_graph.collection_def["train_op"].node_list.value.append("product")
    answer = grappler_costs.run_grappler(
        {
            "meta_graph": meta_graph.SerializeToString(),
            "op_types": [],
            "device": device_properties_pb2.NamedDevice(
                name="/job:localhost/replica:0/task:0/device:CPU:0", properties=properties
            ).SerializeToString(),
        }
    )
    prices = map(op_performance_data_pb2.OpPerformance.FromString, answer["op_performance"])
    own = {price.node: price.compute_cost * 1e-9 for price in prices}["product"]
    work = grappler_costs.estimate(flat, shapes.infer(flat))
    ours = work.flops[3] / costs.flops_per_second(gpu) + work.memory_bytes[3] / 240e9
    assert own == pytest.approx(ours, abs=2e-6)
    assert own > 0.02


def test_grappler_makes_no_tensor_of_a_large_input(monkeypatch):
    """It would write all its elements; the price is the same without."""
    from tensorflow.core.protobuf import meta_graph_pb2

    asked, run = [], grappler_costs.run_grappler

    def noted(request):
        asked.append(meta_graph_pb2.MetaGraphDef.FromString(request["meta_graph"]))
        return run(request)

    monkeypatch.setattr(grappler_costs, "run_grappler", noted)
    flat = _matmul_graph(4096, 16, 32)
    properties = shapes.infer(flat)
    work = grappler_costs.estimate(flat, properties)
    assert "Placeholder" not in [node.op for node in asked[0].graph_def.node]
    assert work.flops[3] == 2 * 4096 * 16 * 32
    assert work.memory_bytes[[0, 3]].tolist() == [0, 4 * (4096 * 16 + 16 * 32 + 4096 * 32)]


def test_unknown_shapes_and_units_are_not_covered():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], name="x")
        tf.raw_ops.Relu(features=x, name="open")
        y = v1.placeholder(tf.float32, [4], name="y")
        tf.raw_ops.Relu(features=y, name="in_a_loop")
    priced = _price(_flat(graph.as_graph_def(), units={"in_a_loop": "loop"}))
    assert priced.covered.tolist() == [True, False, True, False]
    assert priced.notes[0].startswith("2 of 4 ops have no price")
    assert priced.notes[1].startswith("the trip counts of 1 loops are not known")


def test_nodes_of_one_op_add_up():
    flat = _matmul_graph()
    single = _price(flat).op_seconds
    joined = price(flat, shapes.infer(flat), np.array([0, 0, 0, 1, 1], dtype=np.int32), PAIR)
    np.testing.assert_allclose(joined.op_seconds, [single[:3].sum(0), single[3:].sum(0)])


def test_graph_that_grappler_dies_of_gets_defaults_and_a_note(monkeypatch):
    monkeypatch.setattr(grappler_costs, "run_grappler", lambda request: {"error": "it died"})
    priced = _price(_matmul_graph())
    assert priced.op_seconds[3, 0] == pytest.approx(4 * (64 * 16 + 16 * 32 + 64 * 32) / 1e6)
    assert priced.covered.tolist() == [True, True, True, False, False]
    assert priced.notes[0] == "Grappler priced nothing: it died"


def test_what_kills_grapplers_process_ends_as_an_error():
    class Deadly:
        def __reduce__(self):
            return os._exit, (9,)

    answer = grappler_costs.run_grappler({"meta_graph": Deadly()})
    assert answer == {"error": "it failed: it said nothing"}


def test_foreign_op_types_are_cut_out_before_grappler_sees_them(monkeypatch):
    """As for a custom op: registered where shapes are inferred, but not in Grappler's process."""
    flat = _matmul_graph()
    graph_def = v1.GraphDef()
    graph_def.CopyFrom(flat.graph_def)
    graph_def.node[3].op = "MyMatMul"
    properties = shapes.infer(flat)
    foreign = FlatGraph(graph_def, flat.origins, flat.feeds, (), {}, {})
    work = grappler_costs.estimate(foreign, properties)
    assert np.isnan(work.flops).tolist() == [False, False, False, True, False]
    assert work.memory_bytes[4] == 4 * 64 * 32
    assert work.notes == ["Grappler knows no op type MyMatMul"]


def test_loop_runs_where_its_body_has_kernels():
    @tf.function
    def step(x):
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, y + tf.strings.to_number(tf.strings.as_string(y))),
            (tf.constant(0), x),
        )[1]

    graph_def = step.get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def()
    loop = next(node for node in graph_def.node if "While" in node.op)
    table, library = kernel_table(), library_of(graph_def)
    assert node_work.runs_on(loop, "CPU", table, library)
    assert not node_work.runs_on(loop, "GPU", table, library)
    assert node_work.runs_on(loop, "GPU", table, {})
