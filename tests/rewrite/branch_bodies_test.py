"""Ops in branches of conditionals run where they were placed, and compute the same."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.build import build_op_graph, origin_devices
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.source_model import TensorSpec
from rewrite.call_graph import copy_of
from rewrite.place_graph import place_graph
from tests.rewrite.placements import read_devices
from tests.rewrite.traced_run import traced_run

v1 = tf.compat.v1
DEVICES = ("/device:CPU:0", "/device:CPU:1")
FEEDS = [TensorSpec("x:0", "float32", (2,)), TensorSpec("p:0", "int32", ())]


def _model():
    """Conditionals of one pair of branch functions in two bodies, a Case, a gradient."""

    @tf.function
    def deeper(x):
        return tf.sinh(x)

    @tf.function
    def called(x, p):
        return tf.cond(p > 0, lambda: tf.tanh(x), lambda: deeper(tf.cosh(x)), name="second")

    @tf.function
    def step(x, p):
        y = tf.cond(p > 0, lambda: tf.tanh(x), lambda: deeper(tf.cosh(x)), name="first")
        z = called(x, p)
        nested = lambda: tf.cond(p > 1, lambda: tf.atan(y), lambda: tf.asinh(z))  # noqa: E731
        with tf.GradientTape() as tape:
            tape.watch(x)
            w = tf.switch_case(p, [nested, lambda: tf.math.erf(x), nested], name="third")
        return y + z + w, tape.gradient(w, x)

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], name="x")
        p = v1.placeholder(tf.int32, [], name="p")
        values = step(x, p)
        tf.identity(values[0], name="out")
        tf.identity(values[1], name="gradient")
    return _with_shared_branches(graph.as_graph_def())


def _with_shared_branches(graph_def):
    """The second conditional runs the functions of the first."""
    nodes = {n.name: n for f in graph_def.library.function for n in f.node_def}
    for branch in ("then_branch", "else_branch"):
        nodes["second"].attr[branch].CopyFrom(nodes["first"].attr[branch])
    return graph_def


@pytest.fixture(scope="module")
def model():
    return _model()


@pytest.fixture(scope="module")
def flat(model):
    return flatten(model, FEEDS, ["out:0", "gradient:0"])


def _wanted(flat, seed):
    """Random devices, as origins and as {flat op: device}."""
    built = build_op_graph(flat, infer(flat))
    group, count = built.graph.colocation_group, built.graph.num_ops
    random = np.random.default_rng(seed)
    of_group = random.integers(0, 2, count)
    placement = np.where(group < 0, random.integers(0, 2, count), of_group[group])
    names = dict(zip(built.graph.op_names, placement.tolist(), strict=True))
    return origin_devices(flat, built, placement.astype(np.int32), DEVICES), names


def _run(graph_def, fetches, p):
    """The first two results, and {op path as TensorFlow names it: device} of what ran."""
    values, ran = traced_run(graph_def, fetches, {"x:0": [0.5, -0.25], "p:0": p})
    return values[:2], {name: int(device[-1]) for name, device in ran}


def _plain(path):
    """TensorFlow numbers the calls it opens: "c/then/_3/op" for "c/then/op"."""
    return "/".join(word for word in path.split("/") if not word.lstrip("_").isdigit())


@pytest.mark.parametrize("seed", [0, 1])
def test_branches_run_where_their_ops_were_placed(model, flat, seed):
    wanted, device_of_name = _wanted(flat, seed)
    placed = place_graph(model, wanted).graph_def
    assert read_devices(placed, wanted) == wanted
    assert not place_graph(placed, wanted).modified
    special = {"Tanh", "Sinh", "Cosh", "Atan", "Asinh", "Erf"}
    in_step = {name.partition("/")[2]: device for name, device in device_of_name.items()}
    compared = set()
    for p in (0, 1, 2):
        given, _ = _run(model, ["out:0", "gradient:0"], p)
        values, where = _run(placed, ["out:0", "gradient:0"], p)
        np.testing.assert_array_equal(values, given)
        ran = {_plain(n): d for n, d in where.items() if n.rpartition("/")[2] in special}
        assert ran == {name: in_step[name] for name in ran}
        compared |= {name.rpartition("/")[2] for name in ran}
        opened, _ = _run(_with_devices(flat, device_of_name), list(flat.fetches), p)
        np.testing.assert_array_equal(opened, given)
    assert compared == special


def _with_devices(flat, device_of_name):
    graph_def = type(flat.graph_def)()
    graph_def.CopyFrom(flat.graph_def)
    for node in graph_def.node:
        node.device = DEVICES[device_of_name[node.name]]
    return graph_def


def test_branch_functions_are_copied_only_where_conditionals_disagree(model, flat):
    alike = {origin: DEVICES[1] for origin in flat.origins if origin.node}
    assert len(place_graph(model, alike).graph_def.library.function) == len(model.library.function)
    built = build_op_graph(flat, infer(flat))
    names = list(built.graph.op_names)
    placement = np.zeros(len(names), np.int32)
    placement[[i for i, n in enumerate(names) if "second/" in n and n.endswith("Tanh")]] = 1
    wanted = origin_devices(flat, built, placement, DEVICES)
    placed = place_graph(model, wanted).graph_def
    before = {f.signature.name for f in model.library.function}
    copies = {copy_of(f): f for f in placed.library.function if f.signature.name not in before}
    conditionals = {
        node.name: node.attr["then_branch"].func.name
        for function in placed.library.function
        for node in function.node_def
        if node.name in ("first", "second")
    }
    (copy,) = copies.values()
    assert copy_of(copy) in conditionals.values() and copy.signature.name in conditionals.values()
    tanh = {
        f.signature.name: n.device
        for f in placed.library.function
        for n in f.node_def
        if n.op == "Tanh"
    }
    assert [tanh[conditionals[name]] for name in ("first", "second")] == list(DEVICES)
