"""Ops inside loops lie where their unit lies, those of branches where they are wanted."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.build import build_op_graph, origin_devices
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.source_model import TensorSpec
from rewrite.place_graph import place_graph
from tests.rewrite.placements import read_devices
from tests.rewrite.traced_run import traced_run

v1 = tf.compat.v1
CPU0, CPU1 = "/device:CPU:0", "/device:CPU:1"
SPECIAL = {"Tanh", "Sinh", "Cosh", "Atan", "Sin"}


@pytest.fixture(scope="module")
def model():
    """A loop and a conditional; sin is called inside the loop and outside."""
    was_v2 = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    sine = tf.function(lambda x: tf.sin(x))

    def body(i, y):
        return i + 1, sine(tf.sinh(tf.tanh(y)))

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 2], name="x")
        y = tf.while_loop(lambda i, _: i < 3, body, (tf.constant(0), x))[1]
        z = tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.cosh(y), lambda: tf.atan(y))
        tf.add(z, sine(x), name="out")
    if not was_v2:
        v1.disable_control_flow_v2()
    return graph.as_graph_def()


@pytest.fixture(scope="module")
def flat(model):
    return flatten(model, [TensorSpec("x:0", "float32", (2, 2))], ["out:0"])


def _wanted(flat, unit_device):
    built = build_op_graph(flat, infer(flat))
    in_unit = np.isin(built.graph.op_types, ["While", "StatelessWhile"])
    placement = np.where(in_unit, unit_device, 1 - unit_device).astype(np.int32)
    return origin_devices(flat, built, placement, (CPU0, CPU1))


def _run(graph_def):
    """The result, and (op type, device) of what ran."""
    value, ran = traced_run(graph_def, "out:0", {"x:0": np.full((2, 2), 0.5)})
    op_types = ((name.rpartition("/")[2], device) for name, device in ran)
    return value, {(op_type, device) for op_type, device in op_types if op_type in SPECIAL}


@pytest.mark.parametrize("unit_device", [0, 1])
def test_bodies_run_where_their_unit_is_and_give_the_same(model, flat, unit_device):
    wanted = _wanted(flat, unit_device)
    placed = place_graph(model, wanted).graph_def
    inside, outside = f"CPU:{unit_device}", f"CPU:{1 - unit_device}"
    given, _ = _run(model)
    value, ran = _run(placed)
    np.testing.assert_array_equal(value, given)
    assert ran == {
        *((name, inside) for name in ("Tanh", "Sinh", "Sin")),
        *((name, outside) for name in ("Cosh", "Sin")),
    }


def test_their_devices_stand_in_the_file_and_a_function_of_both_is_copied(model, flat):
    wanted = _wanted(flat, 1)
    placed = place_graph(model, wanted).graph_def
    assert read_devices(placed, wanted) == wanted
    assert not place_graph(placed, wanted).modified
    devices = {
        (node.op, node.device)
        for function in placed.library.function
        for node in function.node_def
        if node.op in SPECIAL
    }
    # The body's own sin has none: it follows whoever runs it.
    assert devices == {
        *((name, "/device:CPU:1") for name in ("Tanh", "Sinh")),
        *((name, "/device:CPU:0") for name in ("Cosh", "Atan", "Sin")),
        ("Sin", ""),
    }
