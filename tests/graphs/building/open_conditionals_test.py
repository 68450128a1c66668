"""Conditionals opened: values, names, branches one of so many and in turn, what stays whole."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.build import build_op_graph
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.flat_graph import Origin
from graphs.source_model import TensorSpec
from tests.graphs.small_graphs import run

v1 = tf.compat.v1
X, P = np.array([0.25, -0.5], np.float32), (0, 1, 2, 7)


@tf.function
def _noisy(x):
    """A called function of which an op has no inputs and another checks its argument."""
    tf.debugging.assert_less(tf.reduce_sum(x), 9.0)
    return tf.sin(x) + tf.ones([2])


def _calls_and_cases(x, p):
    y = tf.cond(p > 0, lambda: tf.tanh(_noisy(x)), lambda: tf.ones([2]), name="first")
    inner = lambda: tf.cond(y[0] > 0.5, lambda: _noisy(-y), lambda: tf.exp(y))  # noqa: E731
    return tf.switch_case(p, [lambda: y + 1.0, lambda: y * _noisy(y), inner], name="second")


def _gradients(x, p):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.cond(p > 0, lambda: tf.tanh(x) * tf.sin(x), lambda: tf.exp(x))
    return tape.gradient(y, x)


def _graph(build):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], name="x")
        p = v1.placeholder(tf.int32, [], name="p")
        tf.identity(tf.function(build)(x, p), name="out")
    return graph.as_graph_def()


def _flat(graph_def):
    feeds = [TensorSpec("x:0", "float32", (2,)), TensorSpec("p:0", "int32", ())]
    return flatten(graph_def, feeds, ["out:0"])


@pytest.mark.parametrize("build", [_calls_and_cases, _gradients])
def test_every_branch_computes_the_same(build):
    graph_def = _graph(build)
    flat = _flat(graph_def)
    assert not {"If", "StatelessIf", "Case", "StatelessCase"} & {
        node.op for node in flat.graph_def.node if node.name not in flat.unit_of_node
    }
    for p in P:
        given = run(graph_def, ["out:0"], {"x:0": X, "p:0": p})[0]
        np.testing.assert_array_equal(
            run(flat.graph_def, list(flat.fetches), {"x:0": X, "p:0": p})[0], given
        )


def _small(x, p):
    return tf.cond(p > 0, lambda: tf.tanh(x), lambda: tf.sin(x) + 1.0, name="c")


def test_names_origins_shares_and_what_is_tied():
    flat = _flat(_graph(_small))
    call = next(name for name in flat.opened)[: -len("c")]
    ops = {}
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        if node.name.startswith(f"{call}c/") and node.op != "Identity":
            share = flat.share_of_node.get(node.name, 1.0)
            ops[node.name.removeprefix(call)] = (node.op, origin.node, len(origin.calls), share)
    assert ops == {
        "c/input_0": ("Switch", "", 0, 0.5),
        "c/predicate": ("Switch", "c", 1, 0.5),
        "c/then/Tanh": ("Tanh", "Tanh", 2, 0.5),
        "c/else/Sin": ("Sin", "Sin", 2, 0.5),
        "c/else/add/y": ("Const", "add/y", 2, 0.5),
        "c/else/add": ("AddV2", "add", 2, 0.5),
        "c/output_0": ("Merge", "c", 1, 1.0),
    }
    built = build_op_graph(flat, infer(flat)).graph
    group = dict(zip(built.op_names, built.colocation_group.tolist(), strict=True))
    of_the_conditional = {group[f"{call}c/{n}"] for n in ("predicate", "output_0")}
    assert len(of_the_conditional) == 1 and -1 not in of_the_conditional
    assert group[f"{call}c/else/input_control"] in of_the_conditional
    assert group[f"{call}c/input_0"] == group["x"] >= 0
    assert group[f"{call}c/then/Tanh"] == -1
    assert flat.opened == {
        f"{call}c": "a conditional whose 6 ops are placed one by one, each of its 2 branches "
        "counted as one of so many"
    }


def test_branches_come_one_after_the_other_and_send_as_often_as_they_run():
    flat = _flat(_graph(_small))
    built = build_op_graph(flat, infer(flat)).graph
    index = {name.rpartition("c/")[2]: i for i, name in enumerate(built.op_names)}
    producer, user, num_bytes = built.op_edges()
    assert (producer < user).all()
    after = {index["then/Tanh"]}
    for source, target in zip(producer.tolist(), user.tolist(), strict=True):
        if source in after:
            after.add(target)
    assert {index["else/input_control"], index["else/add"], index["output_0"]} <= after
    sent = dict(zip(producer.tolist(), num_bytes.tolist(), strict=True))
    assert sent[index["then/Tanh"]] == 4  # half of two floats
    assert sent[index["output_0"]] == 8


def test_only_the_branch_that_runs_has_side_effects():
    @tf.function
    def bump(handle):
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=1.0)
        return tf.constant(2.0)

    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("v", [], use_resource=True, initializer=v1.zeros_initializer())
        p = v1.placeholder(tf.bool, [], name="p")
        y = tf.cond(p, lambda: bump(variable.handle), lambda: tf.constant(5.0))
        tf.identity(y, name="out")
        flat = flatten(graph.as_graph_def(), [TensorSpec("p:0", "bool", ())], ["out:0"])
    types = [node.op for node in flat.graph_def.node]
    assert types.count("AssignAddVariableOp") == 1 and not flat.unit_of_node
    built = build_op_graph(flat, infer(flat)).graph
    group = dict(zip(built.op_types, built.colocation_group.tolist(), strict=True))
    assert group["VarHandleOp"] == group["AssignAddVariableOp"] >= 0
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(flat.graph_def, name="")
        handle = session.graph.get_tensor_by_name("v:0")
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        session.run(tf.raw_ops.AssignVariableOp(resource=handle, value=0.0))
        assert session.run(list(flat.fetches), {"p:0": False})[0] == 5.0
        assert session.run(value) == 0.0
        assert session.run(list(flat.fetches), {"p:0": True})[0] == 2.0
        assert session.run(value) == 1.0


def _conditional(graph_def):
    nodes = (node for function in graph_def.library.function for node in function.node_def)
    return next(node for node in nodes if node.op in ("If", "StatelessIf"))


def _not_lowered(graph_def):
    del _conditional(graph_def).attr["_lower_using_switch_merge"]


def _not_inlined(graph_def):
    name = _conditional(graph_def).attr["then_branch"].func.name
    function = next(f for f in graph_def.library.function if f.signature.name == name)
    function.attr["_noinline"].b = True


def _no_bool(graph_def):
    _conditional(graph_def).attr["Tcond"].type = tf.int32.as_datatype_enum


def _another_output(graph_def):
    _conditional(graph_def).attr["Tout"].list.type.append(1)


def _no_input(graph_def):
    del _conditional(graph_def).input[:]


def _no_types(graph_def):
    del _conditional(graph_def).attr["Tin"]


def _same_names(graph_def):
    name = _conditional(graph_def).name
    function = next(
        f for f in graph_def.library.function if any(n.name == name for n in f.node_def)
    )
    function.node_def.add(name=f"{name}/then/more", op="NoOp")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_not_lowered, "runs as functions: it does not say _lower_using_switch_merge"),
        (_not_inlined, "runs as functions: a function that says _noinline"),
        (_no_bool, "runs as functions: its condition is no bool"),
        (_another_output, "its branches take or make something else than it says"),
        (_no_input, "its branches take or make something else than it says"),
        (_no_types, "its branches take or make something else than it says"),
        (_same_names, "whose ops would take names of other ops"),
    ],
)
def test_what_tensorflow_would_not_open_stays_one_unit(change, reason):
    graph_def = _graph(_small)
    change(graph_def)
    flat = _flat(graph_def)
    (why,) = flat.unit_reason.values()
    assert reason in why and not flat.opened and len(flat.graph_def.library.function) == 2


def test_assertions_and_recursion_stay_one_unit():
    graph_def = _graph(lambda x, p: _noisy(x))
    assert list(_flat(graph_def).unit_reason.values()) == [
        "a conditional of constants and assertions"
    ]
    graph_def = _graph(_small)
    (call,) = (node for node in graph_def.node if "PartitionedCall" in node.op)
    branch = _conditional(graph_def).attr["then_branch"].func.name
    function = next(f for f in graph_def.library.function if f.signature.name == branch)
    function.node_def.add(name="again", op="NoOp").attr["f"].func.name = call.attr["f"].func.name
    assert list(_flat(graph_def).unit_reason.values()) == ["a conditional that ends a recursion"]


def test_an_op_beside_an_opened_conditional_lies_with_its_predicate():
    graph_def = _graph(_small)
    function = next(f for f in graph_def.library.function if any(n.name == "c" for n in f.node_def))
    nodes = {node.name: node for node in function.node_def}
    nodes["c/Identity"].attr["_class"].list.s.append(b"loc:@c")
    flat = _flat(graph_def)
    of_origin = dict(zip(flat.origins, flat.graph_def.node, strict=True))
    node = of_origin[Origin(function.signature.name, "c/Identity", (function.signature.name,))]
    scope = node.name.removesuffix("c/Identity")
    assert list(node.attr["_class"].list.s) == [f"loc:@{scope}c/predicate".encode()]
