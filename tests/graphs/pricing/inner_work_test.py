"""Loops count as often as they run, and units as much as is inside them."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.building.flatten import flatten
from graphs.cluster import Cluster, Device
from graphs.pricing.costs import price
from graphs.pricing.node_work import node_work
from graphs.source_model import TensorSpec

v1 = tf.compat.v1
CPU = Device("/device:CPU:0", "CPU", 1 << 30, frequency_mhz=1, bandwidth_bytes_per_second=1e6)
ONE = Cluster("one", "duplex", (CPU,), np.zeros((1, 1)), np.ones((1, 1)))
PRODUCT = 2 * 8 * 16 * 16  # flops of x @ w


def _while(condition, body, x, **more):
    return tf.while_loop(condition, body, (tf.constant(0), x), **more)[1]


def _product(x):
    return x @ tf.ones([16, 16])


def _ten(x):
    return _while(lambda i, y: i < 10, lambda i, y: (i + 1, _product(y)), x)


def _by_twos_in_threes(x):
    def body(i, y):
        return i + 2, _while(lambda j, z: j <= 2, lambda j, z: (j + 1, _product(z)), y)

    return _while(lambda i, y: tf.greater(9, i), body, x, maximum_iterations=100)


def _as_long_as_the_batch(x):
    rows = tf.shape(x)[0]
    return _while(lambda i, y: i < rows, lambda i, y: (i + 1, _product(y)), x)


def _until_it_is_large(x):
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (_product(y),), (x,))[0]


def _one_of_two(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: _product(x), lambda: _product(x * 2.0))


def _whole(x):
    function = tf.function(_product, experimental_attributes={"_noinline": True})
    return function(x)


def _opened(build, control_flow_v2):
    switch = v1.enable_control_flow_v2 if control_flow_v2 else v1.disable_control_flow_v2
    was_v2 = v1.control_flow_v2_enabled()
    switch()
    try:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [8, 16], name="x")
            tf.identity(build(x), name="out")
    finally:
        (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()
    feeds = [TensorSpec("x:0", "float32", (8, 16))]
    flat = flatten(graph.as_graph_def(), feeds, ["out:0"])
    return flat, shapes.infer(flat)


@pytest.mark.parametrize(
    ("build", "control_flow_v2", "trips", "products"),
    [
        (_ten, True, [10], 10),
        (_by_twos_in_threes, True, [5], 15),
        (_by_twos_in_threes, False, [3, 5], 15),
        (_until_it_is_large, True, [], 1),
    ],
)
def test_loops_count_as_often_as_constants_say(build, control_flow_v2, trips, products):
    flat, properties = _opened(build, control_flow_v2)
    asked = node_work(flat, properties)
    assert sorted(asked.trip_counts.values()) == trips
    priced = price(flat, properties, np.arange(len(flat.graph_def.node)), ONE, asked)
    assert products <= priced.flops / PRODUCT < products * 1.1
    assert any("trip counts" in note for note in priced.notes) == (not trips)
    kind = "a loop" if control_flow_v2 else "a v1 loop"
    said = [f"{kind}, {trips[-1]} iterations" if trips else kind]
    assert list(priced.units(flat).values()) == said


def test_a_gradients_loop_runs_as_often_as_the_loop_it_is_of():
    def build(x):
        return tf.gradients(_ten(x), x)[0]

    flat, properties = _opened(build, control_flow_v2=True)
    assert list(node_work(flat, properties).trip_counts.values()) == [10, 10]


def test_a_loop_over_the_batch_counts_its_rows():
    flat, properties = _opened(_as_long_as_the_batch, control_flow_v2=False)
    assert list(node_work(flat, properties).trip_counts.values()) == [8]


def test_a_branch_of_an_opened_conditional_counts_as_one_of_so_many():
    flat, properties = _opened(_one_of_two, control_flow_v2=True)
    priced = price(flat, properties, np.arange(len(flat.graph_def.node)), ONE)
    assert 1.0 <= priced.flops / PRODUCT < 1.1
    nodes = list(flat.graph_def.node)
    products = [i for i, node in enumerate(nodes) if "MatMul" in node.op]
    assert {nodes[i].name[: len("cond/then")] for i in products} == {"cond/then", "cond/else"}
    assert (priced.op_seconds[products, 0] > PRODUCT / 32e6 / 2).all()
    assert priced.covered[products].all()


def test_a_loop_in_a_branch_counts_as_often_as_both_say():
    def build(x):
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: _ten(x), lambda: x)

    flat, properties = _opened(build, control_flow_v2=True)
    priced = price(flat, properties, np.arange(len(flat.graph_def.node)), ONE)
    assert 5.0 <= priced.flops / PRODUCT < 5.5


def test_a_unit_costs_what_is_inside_it_once():
    flat, properties = _opened(_whole, control_flow_v2=True)
    priced = price(flat, properties, np.arange(len(flat.graph_def.node)), ONE)
    assert 1.0 <= priced.flops / PRODUCT < 1.1
    (unit,) = flat.unit_reason
    index = [node.name for node in flat.graph_def.node].index(unit)
    assert priced.op_seconds[index, 0] > PRODUCT / 32e6
    assert priced.covered[index]
