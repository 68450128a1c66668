"""What acts outside of the process is found and cut; everything else stays, and runs the same."""

import numpy as np
import pytest
import tensorflow as tf

from graphs import op_types
from graphs.effects import acts_outside, left_out_sentence, without_effects
from graphs.function_library import library_of

v1 = tf.compat.v1


def bodies(graph_def):
    return [graph_def.node, *(function.node_def for function in graph_def.library.function)]


def acting(graph_def):
    return [node.op for nodes in bodies(graph_def) for node in nodes if acts_outside(node)]


def names(graph_def):
    return [node.name for nodes in bodies(graph_def) for node in nodes]


def runs(graph_def, fetches, feeds=None):
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(fetches, feeds)


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def test_a_graph_without_any_is_not_copied():
    with tf.Graph().as_default() as graph:
        tf.identity(tf.constant(1.0)) + 1.0
    graph_def = graph.as_graph_def()
    assert without_effects(graph_def) is graph_def


def test_every_kind_in_functions_loops_and_branches_is_cut(folder):
    """One step does all of it: it writes nothing, and gives what it gave."""

    @tf.function(input_signature=[tf.TensorSpec([3])])
    def step(x):
        writer = tf.raw_ops.SummaryWriter(shared_name="writer")
        tf.raw_ops.CreateSummaryFileWriter(
            writer=writer,
            logdir=str(folder / "events"),
            max_queue=1,
            flush_millis=1,
            filename_suffix="",
        )
        tf.raw_ops.WriteScalarSummary(writer=writer, step=0, tag="a", value=x[0])
        tf.raw_ops.FlushSummaryWriter(writer=writer)
        for i in tf.range(2):
            tf.io.write_file(str(folder) + "/" + tf.strings.as_string(i), "text")
            if x[0] > 0:
                tf.print(i, output_stream=f"file://{folder}/log")
        tf.raw_ops.SaveV2(
            prefix=str(folder / "saved"), tensor_names=["x"], shape_and_slices=[""], tensors=[x]
        )
        total = tf.constant(0, tf.int64)
        data = tf.data.Dataset.range(4).cache(str(folder / "cache"))
        for each in data.snapshot(str(folder / "snapshot")):
            total += each
        return tf.raw_ops.Print(input=x, data=[x], message="said") + tf.cast(total, tf.float32)

    concrete = step.get_concrete_function()
    graph_def = concrete.graph.as_graph_def()
    cut = without_effects(graph_def)
    assert len(acting(graph_def)) >= 9
    assert not acting(cut)
    assert without_effects(cut) is cut
    assert set(names(graph_def)) <= set(names(cut))
    feed, output = concrete.inputs[0].name, concrete.outputs[0].name
    given = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(runs(cut, output, {feed: given}), [7.0, 8.0, 9.0])
    assert files_in(folder) == []
    # The same of the uncut graph, to see that it would have written.
    runs(graph_def, [output, *_stateful(graph_def)], {feed: given})
    assert {"events", "0", "1", "log", "saved.index", "cache.index"} <= set(files_in(folder))


def _stateful(graph_def):
    """Ops of the main graph that only act."""
    acts = {"While", "StatefulPartitionedCall", *op_types.WRITES}
    return [node.name for node in graph_def.node if node.op in acts]


def test_what_a_cut_op_reads_is_still_computed_where_it_is():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], "x")
        with tf.device("/device:CPU:0"):
            op = tf.raw_ops.WriteFile(filename="/nowhere/f", contents=tf.io.serialize_tensor(x))
        with tf.control_dependencies([op]):
            tf.identity(x, "after")
    cut = without_effects(graph.as_graph_def())
    node = next(node for node in cut.node if node.name == op.name)
    assert (node.op, node.device) == ("Assert", "/device:CPU:0")
    assert [name.partition(":")[0] for name in node.input[1:]] == [i.op.name for i in op.inputs]
    constant = next(each for each in cut.node if each.name == node.input[0])
    assert constant.device == node.device  # else each step would send it there
    np.testing.assert_array_equal(runs(cut, "after:0", {"x:0": [1.0, 2.0]}), [1.0, 2.0])


def test_in_a_frame_of_a_loop_of_tensorflow_1(folder):
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        try:

            def body(i):
                printed = tf.print(i, output_stream=f"file://{folder}/log")
                with tf.control_dependencies([printed]):
                    return i + 1

            end = v1.while_loop(lambda i: i < 3, body, [tf.constant(0)])
        finally:
            v1.enable_control_flow_v2()
    graph_def = graph.as_graph_def()
    assert any(node.op == "Enter" for node in graph_def.node)
    assert runs(without_effects(graph_def), end.name) == 3
    assert files_in(folder) == []


def test_a_cache_in_memory_stays():
    @tf.function
    def elements():
        return tf.data.Dataset.range(3).cache().reduce(tf.constant(0, tf.int64), lambda a, b: a + b)

    graph_def = elements.get_concrete_function().graph.as_graph_def()
    assert any(node.op.startswith("Cache") for nodes in bodies(graph_def) for node in nodes)
    assert without_effects(graph_def) is graph_def


def test_a_debugger_gets_nothing():
    with tf.Graph().as_default() as graph:
        tf.raw_ops.DebugIdentityV2(input=[1.0], debug_urls=["file:///nowhere"], name="debug")
    cut = without_effects(graph.as_graph_def())
    assert {node.name: node.op for node in cut.node}["debug"] == "Identity"
    assert runs(cut, "debug:0").tolist() == [1.0]


def test_python_that_returns_nothing_is_cut_and_other_python_fails_by_itself():
    @tf.function
    def step(x):
        tf.py_function(print, [x], [])
        return tf.py_function(abs, [x], tf.float32)

    cut = without_effects(step.get_concrete_function(tf.TensorSpec([])).graph.as_graph_def())
    assert sorted(node.op for node in cut.node if node.op in ("Assert", *op_types.PYTHON)) == [
        "Assert",
        "EagerPyFunc",
    ]


def test_a_function_keeps_its_outputs():
    @tf.function
    def call(x):
        return tf.raw_ops.Print(input=x, data=[x])

    @tf.function
    def outer(x):
        return call(x) + 1.0

    cut = without_effects(outer.get_concrete_function(tf.TensorSpec([1])).graph.as_graph_def())
    (body,) = library_of(cut).values()
    made = {name.partition(":")[0] for name in body.ret.values()}
    assert made <= {node.name for node in body.node_def}


def test_the_types_are_those_that_tensorflow_has():
    kinds = (op_types.WRITES, op_types.WRITES_AND_HANDS_ON)
    every = [op_type for kind in kinds for op_type in kind]
    assert len(every) == len(set(every))
    for op_type in every:
        outputs = tf.raw_ops.__dict__[op_type] and _definition(op_type).output_arg
        assert bool(outputs) == (op_type not in op_types.WRITES)


def _definition(op_type):
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op_type)


def test_the_sentence():
    assert left_out_sentence({}) == ""
    assert left_out_sentence({"PrintV2": 1, "WriteFile": 2}) == (
        "left out of tfplace's own runs: 1 PrintV2, 2 WriteFile (they act outside of the program)"
    )
    assert left_out_sentence({"PrintV2": 1}).endswith("(it acts outside of the program)")
