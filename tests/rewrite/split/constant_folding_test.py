"""Values that no run can change."""

import numpy as np
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.source_model import TensorSpec
from rewrite.split.constant_folding import KnownValues
from rewrite.split.decision import Split
from tests.rewrite.split.rules.run_rule import floats
from tests.rewrite.split.run_step import flat_graph, run, split_step

v1 = tf.compat.v1
X, BIAS = floats(5, 4), floats(1, 4)


def test_the_axes_of_a_broadcast_operand_are_known():
    with tf.Graph().as_default() as graph:
        x, bias = (v1.placeholder(tf.float32, [None, 4], name) for name in ("x", "bias"))
        tf.gradients(tf.reduce_sum(tf.tanh(x + bias)), bias, name="gradient")
        sums = [op for op in graph.get_operations() if "add_grad/Sum" in op.name]
        axes = [op for op in graph.get_operations() if op.type == "BroadcastGradientArgs"]
    fetches = [op.outputs[0].name for op in sums]
    flat = flat_graph(graph, {"x:0": X, "bias:0": BIAS}, fetches)
    values = KnownValues(flat, infer(flat))
    assert [list(values.value(f"{axes[0].name}:{i}")) for i in (0, 1)] == [[], [0]]
    decisions, _ = split_step(flat, 5, 2, {"x:0": 0})
    assert all(isinstance(decisions.answer_of_op[op.name], Split) for op in sums)


def test_what_one_side_of_a_condition_makes_is_not_evaluated():
    with tf.Graph().as_default() as graph:
        one = tf.constant([1.0, 2.0])
        taken = tf.raw_ops.Switch(data=one, pred=tf.constant(True), name="switch")
        tf.raw_ops.Merge(inputs=[taken.output_false * 2, taken.output_true], name="merged")
    flat = flat_graph(graph, {}, ["merged:0"])
    assert KnownValues(flat, infer(flat)).value("merged:0") is None


def test_a_number_that_can_not_be_computed_at_some_sizes_is_not_known():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1], "x")
        half = tf.math.floordiv(tf.shape(x)[0], 2, name="half")
        tf.add(tf.math.floordiv(7, half, name="steps"), 1, name="more")
    flat = flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (1,))], ["more:0"])
    values = KnownValues(flat, infer(flat))
    assert values.refused == {"steps"}
    assert values.value("half:0") == 0
    assert values.value("steps:0") is None
    assert values.value("more:0") is None


def test_a_default_is_no_value_that_no_run_can_change():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [5, 4], "x")
        axis = v1.placeholder_with_default(tf.constant(1), [], "axis")
        scale = v1.placeholder_with_default(tf.constant(1.0), [], "scale")
        tf.multiply(tf.cumsum(x, axis), scale * 2.0, name="scaled")
    flat = flat_graph(graph, {"x:0": X}, ["scaled:0"])
    _, split = split_step(flat, 5, 2, {"x:0": 0})
    for others in ({}, {"axis:0": 0, "scale:0": 3.0}):
        (whole,), _ = run(flat.graph_def, flat.fetches, {"x:0": X, **others})
        (parts,), _ = run(split.graph_def, split.fetches, {"x:0": X, **others})
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
