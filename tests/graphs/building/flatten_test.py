"""Opening function calls: names, side effects, control edges, units, damaged graphs."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function

from graphs.building.build import build_op_graph
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.errors import FetchError, ModelError
from graphs.flat_graph import Origin
from graphs.graph_view import GraphView
from graphs.source_model import TensorSpec
from tests.graphs.small_graphs import run

v1 = tf.compat.v1


def traced(function, *specs):
    """The GraphDef of a tf.function called from a main graph, with placeholders x0, x1, ..."""
    with tf.Graph().as_default() as graph:
        inputs = [
            tf.compat.v1.placeholder(s.dtype, s.shape, name=f"x{i}") for i, s in enumerate(specs)
        ]
        tf.identity(function(*inputs), name="out")
    feeds = [TensorSpec(f"x{i}:0", s.dtype.name, tuple(s.shape)) for i, s in enumerate(specs)]
    return graph.as_graph_def(), feeds


def test_nested_calls_become_single_ops_that_compute_the_same():
    @tf.function
    def inner(x):
        return tf.tanh(x) * 2.0

    @tf.function
    def outer(x):
        return inner(x) + inner(x + 1.0)

    graph_def, feeds = traced(outer, tf.TensorSpec([2, 3]))
    flat = flatten(graph_def, feeds, ["out:0"])
    types = [node.op for node in flat.graph_def.node]
    assert "PartitionedCall" not in types and types.count("Tanh") == 2
    assert not flat.graph_def.library.function
    value = [[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]]
    given = run(graph_def, "out:0", {"x0:0": value})
    assert run(flat.graph_def, flat.fetches[0], {"x0:0": value}).tolist() == given.tolist()
    tanh = [o for o, n in zip(flat.origins, flat.graph_def.node, strict=True) if n.op == "Tanh"]
    assert {o.node for o in tanh} == {"Tanh"}
    assert all(o.function.startswith("__inference_inner") and len(o.calls) == 2 for o in tanh)


@function.Defun(tf.resource)
def handing_on(handle):
    return handle


@function.Defun(tf.float32)
def writing(x):
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(), shared_name="v")
    write = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(5.0))
    with tf.control_dependencies([write]):
        return x + 1.0


@function.Defun(tf.float32)
def writing_behind_an_op(x):
    return writing(tf.exp(x))


@tf.function
def doing_nothing():
    pass


@pytest.mark.parametrize("which", ["hands its argument on", "ops of no input", "nothing"])
def test_what_a_function_does_comes_after_what_its_call_waits_for(which):
    """So it is where TensorFlow opens the function, and where it doesn't."""
    with tf.Graph().as_default() as graph:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(), shared_name="v", name="v")
        one, three = tf.constant(1.0), tf.constant(3.0)
        if which == "ops of no input":
            first = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="first")
        else:
            first = tf.raw_ops.AssignVariableOp(resource=handle, value=three, name="first")
        with tf.control_dependencies([first]):
            if which == "ops of no input":
                tf.identity(writing_behind_an_op(one), name="out")
            elif which == "nothing":
                doing_nothing()
            else:
                handle = handing_on(handle)
        calls = [op for op in graph.get_operations() if op.type == "PartitionedCall"]
        assert len(calls) == (which == "nothing")
        if which != "ops of no input":
            with tf.control_dependencies(calls):
                read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            tf.identity(read, name="out")
    flat = flatten(graph.as_graph_def(), [], ["out:0"])
    last = "AssignVariableOp" if which == "ops of no input" else "ReadVariableOp"
    [op] = [n.name for n in flat.graph_def.node if n.op == last and n.name != "first"]
    assert "first" in GraphView(flat.graph_def).ancestors([op])


@pytest.mark.parametrize("calls", ["once", "nested"])
def test_a_function_of_tensorflow_1_runs_what_nothing_reads(calls):
    """TensorFlow runs it, too, though the function doesn't say so."""

    @function.Defun(tf.resource, tf.float32)
    def counting(handle, x):
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1.0))
        return tf.tanh(x)

    @function.Defun(tf.resource, tf.float32)
    def outer(handle, x):
        return counting(handle, x) if calls == "nested" else tf.tanh(x)

    with tf.Graph().as_default() as graph:
        count = v1.get_variable("count", initializer=0.0, use_resource=True)
        x = v1.placeholder(tf.float32, (2,), "x")
        tf.identity((outer if calls == "nested" else counting)(count.handle, x), name="out")
    flat = flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (2,))], ["out:0"])
    found = []
    for graph_def, fetches in ((graph.as_graph_def(), ["out:0"]), (flat.graph_def, flat.fetches)):
        with tf.Graph().as_default() as imported, v1.Session() as session:
            v1.import_graph_def(graph_def, name="")
            handle = imported.get_tensor_by_name("count:0")
            session.run(tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(0.0)))
            session.run(list(fetches), {"x:0": [1.0, 2.0]})
            found.append(session.run(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)))
    assert found == [1.0, 1.0]


def test_a_fed_default_is_not_computed():
    with tf.Graph().as_default() as graph:
        default = tf.random.uniform([2], name="default")
        x = tf.compat.v1.placeholder_with_default(default, [None], name="x")
        tf.identity(x, name="out")
    feeds = [TensorSpec("x:0", "float32", (5,))]
    fed = flatten(graph.as_graph_def(), feeds, ["out:0"])
    assert [(n.name, n.op) for n in fed.graph_def.node] == [
        ("x", "Placeholder"),
        ("out", "Identity"),
    ]
    assert infer(fed).shape_of["out"] == [(5,)]
    unfed = flatten(graph.as_graph_def(), [], ["out:0"])
    assert "default/RandomUniform" in {node.name for node in unfed.graph_def.node}


def test_the_order_is_topological_and_the_names_are_call_paths():
    @tf.function
    def f(x):
        return tf.nn.relu(x, name="relu")

    graph_def, feeds = traced(f, tf.TensorSpec([2]))
    call = next(n.name for n in graph_def.node if "PartitionedCall" in n.op)
    flat = flatten(graph_def, feeds, ["out"])
    position = {node.name: i for i, node in enumerate(flat.graph_def.node)}
    assert f"{call}/relu" in position
    for node in flat.graph_def.node:
        for source in node.input:
            assert position[source.lstrip("^").partition(":")[0]] < position[node.name]


def test_a_call_keeps_its_side_effects_though_only_its_output_is_fetched():
    with tf.Graph().as_default() as graph:
        variable = tf.compat.v1.get_variable("v", [], use_resource=True)

        @tf.function
        def step(handle):
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            tf.raw_ops.AssignVariableOp(resource=handle, value=value + 1.0)
            return value * 2.0

        tf.identity(step(variable.handle), name="out")
    flat = flatten(graph.as_graph_def(), [], ["out:0"])
    assert "AssignVariableOp" in [node.op for node in flat.graph_def.node]
    assert any(fetch.endswith("/output_control") for fetch in flat.fetches)
    built = build_op_graph(flat, infer(flat))
    together = {
        name
        for name, group in zip(
            built.graph.op_names, built.graph.colocation_group.tolist(), strict=True
        )
        if group == built.graph.colocation_group[built.graph.op_names.index("v")]
    }
    assert {name.rpartition("/")[2] for name in together} == {
        "v",
        "ReadVariableOp",
        "AssignVariableOp",
    }


def test_control_edges_to_and_from_a_call_go_through_its_two_no_ops():
    @tf.function
    def f(x):
        tf.print("side effect")
        return x + 1.0

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        first = tf.no_op(name="first")
        with tf.control_dependencies([first]):
            y = f(x)
        with tf.control_dependencies([y.op]):
            tf.identity(x, name="out")
    flat = flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (2,))], ["out:0"])
    nodes = {node.name: node for node in flat.graph_def.node}
    call = y.op.name
    assert list(nodes[f"{call}/input_control"].input) == ["^first"]
    assert f"^{call}/output_control" in nodes["out"].input
    assert f"^{call}/input_control" in nodes[f"{call}/add"].input


def test_functional_loops_stay_units_and_keep_their_functions():
    @tf.function
    def f(x):
        return tf.while_loop(lambda i: tf.reduce_sum(i) < 10.0, lambda i: (i + 1.0,), (x,))[0]

    graph_def, feeds = traced(f, tf.TensorSpec([2]))
    flat = flatten(graph_def, feeds, ["out:0"])
    loops = [n.name for n in flat.graph_def.node if n.op in ("While", "StatelessWhile")]
    assert len(loops) == 1
    assert flat.unit_reason == {loops[0]: "a loop"}
    assert len(flat.graph_def.library.function) == 2


def test_ops_around_a_loop_are_in_a_topological_order():
    @tf.function
    def f(x):
        y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (0, x + 1.0))[1]
        return tf.tanh(y) + tf.reduce_sum(x)

    graph_def, feeds = traced(f, tf.TensorSpec([2]))
    flat = flatten(graph_def, feeds, ["out:0"])
    graph = build_op_graph(flat, infer(flat)).graph
    assert (graph.tensor_producer[graph.use_tensor] < graph.use_op).all()
    assert list(graph.op_names) == [node.name for node in flat.graph_def.node]


def test_compiled_functions_stay_units():
    @tf.function(jit_compile=True)
    def f(x):
        return tf.tanh(x) + 1.0

    graph_def, feeds = traced(f, tf.TensorSpec([2]))
    flat = flatten(graph_def, feeds, ["out:0"])
    assert list(flat.unit_reason.values()) == ["compiled by XLA"]


def test_functions_that_tensorflow_may_swap_stay_units():
    f = tf.function(
        lambda x: tf.tanh(x),
        experimental_attributes={"api_implements": "lstm_1", "api_preferred_device": "CPU"},
    )
    graph_def, feeds = traced(f, tf.TensorSpec([2]))
    flat = flatten(graph_def, feeds, ["out:0"])
    assert list(flat.unit_reason.values()) == [
        "a function that TensorFlow may swap for another implementation"
    ]


def test_two_calls_of_one_function_in_one_body_share_their_devices():
    @tf.function
    def inner(x):
        return tf.tanh(x)

    graph_def, feeds = traced(tf.function(lambda x: inner(inner(x))), tf.TensorSpec([2]))
    built = build_op_graph(flat := flatten(graph_def, feeds, ["out:0"]), infer(flat))
    tanh = [i for i, op_type in enumerate(built.graph.op_types) if op_type == "Tanh"]
    groups = built.graph.colocation_group[tanh]
    assert len(tanh) == 2 and groups[0] == groups[1] >= 0


def test_a_v1_loop_becomes_one_op_of_the_op_graph():
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            y = tf.compat.v1.while_loop(
                lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), (0, x), name="loop"
            )[1]
            tf.identity(y, name="out")
    finally:
        tf.compat.v1.enable_control_flow_v2()
    flat = flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (2,))], ["out:0"])
    units = set(flat.unit_of_node.values())
    assert len(units) == 1
    members = {name for name, unit in flat.unit_of_node.items() if unit in units}
    assert {"loop/mul", "loop/Enter", "loop/Exit_1", "loop/NextIteration"} <= members
    assert "out" not in members and "x" not in members
    built = build_op_graph(flat, infer(flat))
    assert list(built.graph.op_types).count("While") == 1
    producer = built.graph.tensor_producer[built.graph.use_tensor]
    assert (producer < built.graph.use_op).all()


def test_unknown_fetches_and_damaged_graphs_are_told():
    graph_def, feeds = traced(tf.function(lambda x: x + 1.0), tf.TensorSpec([2]))
    with pytest.raises(FetchError, match="nothing_there"):
        flatten(graph_def, feeds, ["nothing_there"])
    graph_def.node[-1].input[0] = "gone"
    with pytest.raises(ModelError, match="gone"):
        flatten(graph_def, feeds, ["out:0"])


def test_a_cycle_is_told():
    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0, name="a")
        b = tf.identity(a, name="b")
        tf.identity(b, name="c")
    graph_def = graph.as_graph_def()
    next(n for n in graph_def.node if n.name == "b").input[0] = "c"
    with pytest.raises(ModelError, match="cycle"):
        flatten(graph_def, [], ["c"])


def test_recursion_is_refused():
    graph_def, feeds = traced(tf.function(lambda x: tf.tanh(x)), tf.TensorSpec([2]))
    function = graph_def.library.function[0]
    tanh = next(n for n in function.node_def if n.op == "Tanh")
    call = next(n for n in graph_def.node if "PartitionedCall" in n.op)
    tanh.op = "PartitionedCall"
    for key in ("f", "Tin", "Tout"):
        tanh.attr[key].CopyFrom(call.attr[key])
    for output in function.ret:
        function.ret[output] = function.ret[output].replace(":y:", ":output:")
    next(n for n in function.node_def if n.op == "Identity").input[0] = f"{tanh.name}:output:0"
    with pytest.raises(ModelError, match="calls itself"):
        flatten(graph_def, feeds, ["out:0"])


def test_feeding_a_tensor_in_the_middle_cuts_the_graph_there():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        middle = tf.tanh(x, name="middle")
        tf.exp(middle, name="out")
    flat = flatten(graph.as_graph_def(), [TensorSpec("middle:0", "float32", (2,))], ["out:0"])
    assert [(n.name, n.op) for n in flat.graph_def.node] == [
        ("middle", "Placeholder"),
        ("out", "Exp"),
    ]
    assert flat.origins[1] == Origin("", "out")


def test_side_effects_of_a_call_have_one_order_in_every_process():
    """A proto map, which control_ret is, has another order in each; caches go by the flat graph."""
    graph_def = tf.compat.v1.GraphDef()
    function = graph_def.library.function.add()
    function.signature.name = "step"
    function.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
    function.signature.output_arg.add(name="y", type=tf.float32.as_datatype_enum)
    function.ret["y"] = "x"
    for i in range(9):
        function.node_def.add(name=f"effect_{i}", op="NoOp")
        function.signature.control_output.append(f"effect_{i}")
        function.control_ret[f"effect_{i}"] = f"effect_{i}"
    x = graph_def.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = tf.float32.as_datatype_enum
    call = graph_def.node.add(name="call", op="StatefulPartitionedCall", input=["x"])
    call.attr["f"].func.name = "step"
    flat = flatten(graph_def, [TensorSpec("x:0", "float32", ())], ["call"])
    (end,) = (node for node in flat.graph_def.node if node.name == "call/output_control")
    assert [name for name in end.input if "effect" in name] == [
        f"^call/effect_{i}" for i in range(9)
    ]


def test_an_op_of_the_main_graph_may_have_the_name_of_an_op_that_is_called():
    @tf.function
    def square(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            return tf.square(x, name="y")

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x0")
        first = square(x)
        call = first.op.name
        other = tf.tanh(first, name=f"{call}/y/")  # the name as it is, made unique by nobody
        tf.compat.v1.no_op(name=f"{call}/output_control/")
        with tf.control_dependencies([first.op]):
            tf.identity(square(other), name="out")
    feeds = [TensorSpec("x0:0", "float32", (2,))]
    flat = flatten(graph.as_graph_def(), feeds, ["out:0", f"{call}/output_control"])
    assert flat.nodes[f"{call}/y"].op == "Tanh" and flat.nodes[f"{call}_/y"].op == "Square"
    assert f"{call}_/output_control" in flat.nodes
    # TensorFlow itself aborts where it opens such calls: what they mean is computed here.
    wanted = np.tanh(np.square([0.5, 2.0])) ** 2
    found = run(flat.graph_def, "out:0", {"x0:0": [0.5, 2.0]})
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_called_function_may_have_ops_of_the_names_that_opening_adds():
    """As the function of a split step has, which was opened once before."""

    @tf.function
    def count(x):
        with tf.control_dependencies([x]):
            tf.no_op(name="output_control")
            before = tf.no_op(name="input_control")
        tf.print(x)
        with tf.control_dependencies([before]):
            return x + 1.0

    graph_def, feeds = traced(count, tf.TensorSpec([]))
    flat = flatten(graph_def, feeds, ["out:0"])
    effect = next(name for name, node in flat.nodes.items() if node.op == "PrintV2")
    (control,) = [fetch for fetch in flat.fetches if ":" not in fetch]
    assert control.endswith("/output_control_")
    assert f"^{effect}" in flat.nodes[control].input
