"""A write that waits for a read by way of a shape alone still comes after it in a split step."""

import numpy as np
import pytest
import tensorflow as tf

from graphs import zoo
from graphs.building.flatten import flatten
from graphs.graph_view import GraphView
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.source_model import TensorSpec
from rewrite.pass_base import RewriteError
from rewrite.split.prove_split import ProofLimits, prove_split
from rewrite.split.reading.state_order import require_state_order, with_state_order
from tests.rewrite.split.run_step import flat_graph, run, split_model
from tests.rewrite.split.tensorflow_1_test import tensorflow_1_loops

v1 = tf.compat.v1
BATCH = 6


def counted_behind_a_read(shape_of):
    """A step that writes into a scale how many rows were scaled."""
    x = v1.placeholder(tf.float32, (BATCH, 3), "x")
    weight = v1.get_variable("weight", (3, 2), use_resource=True)
    scale = v1.get_variable("scale", (), use_resource=True)
    read = tf.raw_ops.ReadVariableOp(resource=scale.handle, dtype=tf.float32, name="read")
    rows = tf.tanh(x @ weight) * read
    count = tf.cast(shape_of(rows, x)[0], tf.float32)
    write = tf.raw_ops.AssignVariableOp(resource=scale.handle, value=count, name="write")
    with tf.control_dependencies([write]):
        return tf.reduce_mean(rows, name="loss")


def of_a_shape(rows, x):
    return tf.raw_ops.Shape(input=rows)


def of_a_late_constant(rows, x):
    with tf.control_dependencies([rows]):
        shape = tf.constant([BATCH, 3, 1])
    return tf.reduce_sum(tf.reshape(tf.exp(x), shape), [0, 1])


def of_a_copied_constant(rows, x):
    shape = tf.constant([BATCH, 3, 1])
    with tf.control_dependencies([rows]):
        shape = tf.identity(shape)
    return tf.reduce_sum(tf.reshape(tf.exp(x), shape), [0, 1])


def of_a_shape_in_a_branch(rows, x):
    def branch(function):
        made = function(rows)
        return made, tf.raw_ops.Shape(input=made)

    likely = v1.placeholder_with_default(True, ())
    return tf.cond(likely, lambda: branch(tf.sin), lambda: branch(tf.cos))[1]


@pytest.mark.parametrize(
    "shape", [of_a_shape, of_a_late_constant, of_a_copied_constant, of_a_shape_in_a_branch]
)
def test_a_write_waits_for_the_read(shape, tmp_path):
    with tf.Graph().as_default() as graph:
        loss = counted_behind_a_read(shape)
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(tmp_path / "model.pb"), LoadOptions(fetch=(loss.name,))), 2)
    assert len(split.step.copies["Tanh"]) == 2
    for made in (split.step.graph_def, split.source.split_graph):
        [write] = [node for node in made.node if node.name == "write"]
        assert "^read" in write.input
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.decisions, split.step, 2, limits)
    assert not proof.differing


def test_what_a_batch_normalisation_is_taken_apart_into_comes_after_its_reads(tmp_path):
    """The slope of a loss that is linear in the images takes neither the scale nor the offset."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 4, 4, 3), "x")
        given = {n: v1.get_variable(n, (3,), use_resource=True) for n in ("scale", "offset")}
        read = {
            name: tf.raw_ops.ReadVariableOp(
                resource=variable.handle, dtype=tf.float32, name=f"read_{name}"
            )
            for name, variable in given.items()
        }
        images, *_ = v1.nn.fused_batch_norm(x, read["scale"], read["offset"])
        loss = tf.reduce_mean(images * 2.0)
        updates = [
            tf.raw_ops.ResourceApplyGradientDescent(
                var=given[name].handle, alpha=0.1, delta=slope, name=f"write_{name}"
            )
            for name, slope in zip(read, tf.gradients(loss, list(read.values())), strict=True)
        ]
        with tf.control_dependencies(updates):
            loss = tf.identity(loss)
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(tmp_path / "model.pb"), LoadOptions(fetch=(loss.name,))), 2)
    norms = [node for node in split.step.graph_def.node if node.op.startswith("FusedBatchNorm")]
    assert not any(node.attr["is_training"].b for node in norms)
    view = GraphView(split.step.graph_def)
    for name in given:
        assert f"read_{name}" in view.ancestors([f"write_{name}"])


def by_a_loop(x, scale):
    read = tf.raw_ops.ReadVariableOp
    return tf.while_loop(
        lambda i, *_: i < 3,
        lambda i, rows, number: (
            i + 1,
            tf.tanh(rows) * read(resource=scale.handle, dtype=tf.float32),
            number * 0.5,
        ),
        (0, x, 8.0),
    )[1:]


def by_a_conditional(x, scale):
    def branch(rows):
        read = tf.raw_ops.ReadVariableOp(resource=scale.handle, dtype=tf.float32)
        return rows * read, read * 0.5

    likely = v1.placeholder_with_default(True, ())
    return tf.cond(likely, lambda: branch(tf.tanh(x)), lambda: branch(tf.exp(x)))


@pytest.mark.parametrize("rows_of", [by_a_loop, by_a_conditional])
def test_a_write_of_what_all_copies_return_waits_for_all_of_them(rows_of, tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 3), "x")
        scale = v1.get_variable("scale", (), use_resource=True)
        rows, number = rows_of(x, scale)
        write = tf.raw_ops.AssignVariableOp(resource=scale.handle, value=number, name="write")
        with tf.control_dependencies([write]):
            loss = tf.reduce_mean(rows, name="loss")
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(tmp_path / "model.pb"), LoadOptions(fetch=(loss.name,))), 2)
    [copies] = [names for op, names in split.step.copies.items() if op in ("while", "cond")]
    for made in (split.step.graph_def, split.source.split_graph):
        assert set(copies) <= GraphView(made).ancestors(["write"]).keys()
        own = [each for each in made.library.function if "_shard_" in each.signature.name]
        for function in own:  # TensorFlow opens it, and waits for these ops alone
            reads = {node.name for node in function.node_def if node.op == "ReadVariableOp"}
            assert reads <= set(function.control_ret.values())
        assert len(own) >= 2
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.decisions, split.step, 2, limits)
    assert not proof.differing


def read_in_a_conditional(scale, count):
    likely = v1.placeholder_with_default(True, ())
    return v1.cond(likely, lambda: times(count, scale), lambda: count)


def read_in_a_loop(scale, count):
    once = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, times(y, scale)), (0, count))
    return tf.ensure_shape(once[1], [3])


def times(number, variable):
    with tf.control_dependencies([tf.identity(number)]):
        read = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32, name="read")
    return number * read


def many(rows):
    return tf.ones([3]) * tf.cast(tf.raw_ops.Shape(input=rows)[0], tf.float32)


@pytest.mark.parametrize("read", [read_in_a_conditional, read_in_a_loop])
@pytest.mark.parametrize("is_read_first", [True, False])
def test_what_control_flow_of_tensorflow_1_reads_keeps_its_place(read, is_read_first, tmp_path):
    with tf.Graph().as_default() as graph, tensorflow_1_loops():
        x = v1.placeholder(tf.float32, (BATCH, 3), "x")
        weight = v1.get_variable("weight", (3, 3), use_resource=True)
        scale = v1.get_variable("scale", (), use_resource=True)
        rows, seven = tf.tanh(x @ weight), tf.constant(7.0)
        if is_read_first:
            rows *= read(scale, tf.ones([3]))
            seven = many(rows)[0]
        write = tf.raw_ops.AssignVariableOp(resource=scale.handle, value=seven, name="write")
        with tf.control_dependencies([write]):
            rows = tf.exp(rows)
        if not is_read_first:
            rows += read(scale, many(rows))
        loss = tf.reduce_mean(rows, name="loss")
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(tmp_path / "model.pb"), LoadOptions(fetch=(loss.name,))), 2)
    assert len(split.step.copies["Tanh"]) == 2
    require_state_order(split.flat, split.step)
    for made in (split.step.graph_def, split.source.split_graph):
        names = [node.name for node in made.node if node.name.endswith("/read")]
        [name] = [each for each in names if not each.startswith("whole/")]
        first, then = (name, "write") if is_read_first else ("write", name)
        assert first in GraphView(made).ancestors([then])
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.decisions, split.step, 2, limits)
    assert not proof.differing


def test_two_handles_of_one_variable_hold_one_state(tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 3), "x")
        handle, other = (
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="scale", name=name)
            for name in ("scale", "other")
        )
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
        count = many(tf.tanh(x) * read)[0]
        write = tf.raw_ops.AssignVariableOp(resource=other, value=count, name="write")
        with tf.control_dependencies([write]):
            tf.identity(x, name="out")
    flat = flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (BATCH, 3))], ["out:0"])
    [write] = [node for node in with_state_order(flat).graph_def.node if node.name == "write"]
    assert "^read" in write.input


def test_an_order_that_is_lost_is_found(tmp_path):
    with tf.Graph().as_default() as graph:
        loss = counted_behind_a_read(of_a_shape)
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(tmp_path / "model.pb"), LoadOptions(fetch=(loss.name,))), 2)
    require_state_order(split.flat, split.step)
    [write] = [node for node in split.step.graph_def.node if node.name == "write"]
    write.input.remove("^read")
    with pytest.raises(RewriteError, match="'write' may run before 'read'"):
        require_state_order(split.flat, split.step)


def test_a_write_waits_for_what_a_conditional_returns(tmp_path):
    """Its branches need not name their reads: a control edge from it may wait for none of them."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 3), "x")
        scale = v1.get_variable("scale", (), use_resource=True)
        rows = by_a_conditional(x, scale)[0]
        count = tf.cast(tf.raw_ops.Shape(input=rows)[0], tf.float32)
        write = tf.raw_ops.AssignVariableOp(resource=scale.handle, value=count, name="write")
        with tf.control_dependencies([write]):
            tf.identity(rows.op.inputs[0], name="late")  # which comes after the write
    feeds = [TensorSpec("x:0", "float32", (BATCH, 3))]
    flat = flatten(graph.as_graph_def(), feeds, ["late"], open_conditionals=False)
    flat = with_state_order(flat)
    [write] = [node for node in flat.graph_def.node if node.name == "write"]
    assert {"^cond", "^cond/Identity"} <= set(write.input) and "^late" not in write.input


def test_what_functions_read_comes_after_a_write_that_their_arguments_come_after():
    """A shard's copy of a branch has no control edges, and its ops take what they need."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 3), "x")
        scale = v1.get_variable("scale", (), use_resource=True)
        seven = tf.constant(7.0)
        write = tf.raw_ops.AssignVariableOp(resource=scale.handle, value=seven, name="write")
        with tf.control_dependencies([write]):
            late = tf.identity(x)

        def branch(rows):
            with tf.control_dependencies([rows]):
                return rows * tf.raw_ops.ReadVariableOp(resource=scale.handle, dtype=tf.float32)

        likely = v1.placeholder_with_default(True, ())
        rows = tf.cond(likely, lambda: branch(tf.tanh(late)), lambda: branch(tf.exp(late)))
        again = tf.cond(likely, lambda: branch(tf.sin(rows)), lambda: branch(tf.cos(rows)))
        tf.identity(again, name="rows")
    feeds = [TensorSpec("x:0", "float32", (BATCH, 3))]
    flat = flatten(graph.as_graph_def(), feeds, ["rows:0"], open_conditionals=False)
    cond, other = (node for node in with_state_order(flat).graph_def.node if "If" in node.op)
    assert "^write" in cond.input
    assert "^write" in other.input and f"^{cond.name}" not in other.input  # they only read


def test_nothing_waits_for_what_may_be_dead():
    """What comes behind a Merge runs, too, when what leads to one of its inputs does not."""
    with tf.Graph().as_default() as graph:
        likely = v1.placeholder(tf.bool, (), "likely")
        scale = v1.get_variable("scale", (), use_resource=True)
        no, yes = tf.raw_ops.Switch(data=likely, pred=likely)
        with tf.control_dependencies([tf.identity(yes)]):
            read = tf.raw_ops.ReadVariableOp(resource=scale.handle, dtype=tf.float32)
        with tf.control_dependencies([tf.identity(no)]):
            seven = tf.constant(7)
        value = tf.raw_ops.Merge(inputs=[tf.raw_ops.Rank(input=read), seven])[0]
        value = tf.cast(value, tf.float32)
        tf.raw_ops.AssignVariableOp(resource=scale.handle, value=value, name="write")
    for taken, wanted in ((False, 7), (True, 0)):
        feeds = {"likely:0": np.array(taken)}
        flat = with_state_order(flat_graph(graph, feeds, ["write"]))
        assert run(flat.graph_def, flat.fetches, feeds)[1] == {"scale": wanted}


@pytest.mark.parametrize("name", ["rnnlm", "transformer", "cifar10"])
def test_where_more_than_sizes_says_the_order_nothing_is_added(name, tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build(name, "tiny"), path)
    source = load(path, LoadOptions())
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    assert with_state_order(flat) is flat
