"""Whose buffer an output is, on small TensorFlow graphs."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.building.build import build_op_graph
from graphs.building.flatten import flatten
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _graph(make, fetch):
    """The op graph of a step that is fed x [4, 4] and fetches a tensor or an op."""
    with tf.Graph().as_default() as graph:
        make(v1.placeholder(tf.float32, [4, 4], name="x"))
    feeds = [TensorSpec("x:0", "float32", (4, 4))]
    flat = flatten(graph.as_graph_def(), feeds, [fetch])
    return build_op_graph(flat, shapes.infer_graph_def(flat.graph_def, feeds)).graph


def _shares(graph):
    """{output: whose buffer it is}, with a question mark where it takes that over."""
    names = [
        f"{graph.op_names[op]}:{output}" if output else graph.op_names[op]
        for op, output in zip(graph.tensor_producer, graph.tensor_output, strict=True)
    ]
    shared = np.flatnonzero(graph.tensor_shares >= 0)
    mark = np.where(graph.tensor_takes_over, "?", "")
    return {names[t]: mark[t] + names[graph.tensor_shares[t]] for t in shared}


def test_what_is_handed_on_is_its_inputs_buffer_and_what_is_fed_or_fetched_is_kept():
    def make(x):
        y = tf.matmul(x, x, name="product")
        flat = tf.reshape(y, [2, 8], name="flat")
        one, _ = tf.identity_n([flat, tf.squeeze(x[:, :1], name="squeezed")], name="both")
        tf.identity(tf.matmul(tf.stop_gradient(one, name="stop"), one, transpose_b=True), "out")

    graph = _graph(make, "out:0")
    assert _shares(graph) == {
        "x": "x",
        "flat": "product",
        "squeezed": "strided_slice",
        "both": "flat",
        "both:1": "squeezed",
        "stop": "both",
        "MatMul": "MatMul",  # out hands it on, and is fetched
        "out": "MatMul",
    }


def test_an_elementwise_op_takes_over_the_input_with_fewest_users():
    def make(x):
        y, z = tf.matmul(x, x, name="y"), tf.matmul(x, x + 1.0, name="z")
        total = tf.add(y, z, name="total")  # y is needed again
        twice = tf.multiply(total, total, name="twice")  # both of its inputs are one tensor
        is_more = tf.greater(twice, y, name="is_more")  # other bytes
        tf.reduce_sum(tf.where(is_more, twice, y, name="chosen"), name="out")

    graph = _graph(make, "out:0")
    found = _shares(graph)
    assert found["total"] == "?z"
    assert "twice" not in found
    assert "is_more" not in found
    assert found["out"] == "out"
    assert found["chosen"] in ("?twice", "?y")


def test_a_read_is_the_variables_own_and_holds_nothing_else():
    def make(x):
        w = v1.get_variable("w", [4, 4], use_resource=True, initializer=v1.zeros_initializer())
        read = tf.raw_ops.ReadVariableOp(resource=w.handle, dtype=tf.float32, name="read")
        tf.matmul(x, tf.identity(read, "same"), name="out")

    graph = _graph(make, "out:0")
    assert _shares(graph) == {"x": "x", "same": "read", "out": "out"}
    alloc = dict(zip(graph.op_names, graph.tensor_alloc_bytes.tolist(), strict=False))
    assert alloc["read"] == alloc["same"] == 0


@pytest.mark.parametrize("order", [1, -1])
def test_additions_of_additions_hold_all_terms(order):
    def make(x):
        a, b, c, d = (tf.matmul(x, x + i, name=n) for i, n in enumerate("abcd", 1))
        first = tf.add_n([a, b, c][::order], name="first")
        second = tf.add_n([first, d][::order], name="second")
        tf.reduce_sum(tf.add_n([second, x][::order], name="third"), name="out")

    graph = _graph(make, "out:0")
    found = _shares(graph)
    assert "first" not in found
    assert found["second"] == "first"  # not taken over: held as well
    assert "third" not in found
    of = {graph.op_names[op]: tensor for tensor, op in enumerate(graph.tensor_producer)}
    sizes = [graph.tensor_alloc_bytes[of[name]] for name in ("first", "second", "third")]
    assert sizes == [2 * 64, 64, 64]


def test_many_terms_of_a_joined_addition_count_where_the_last_one_runs():
    def make(x):
        terms = [tf.matmul(x, x + i) for i in range(10)]
        first = tf.add_n(terms[:9], name="first")
        tf.reduce_sum(tf.add_n([first, terms[9]], name="last"), name="out")

    graph = _graph(make, "out:0")
    of = {graph.op_names[op]: tensor for tensor, op in enumerate(graph.tensor_producer)}
    temporary = dict(zip(graph.op_names, graph.op_temp_bytes.tolist(), strict=True))
    held = graph.tensor_alloc_bytes[of["first"]] + temporary["last"]
    assert held == 8 * 64  # beside a term that each of the two ops reads or makes
    assert temporary["first"] == 0 < temporary["last"]
