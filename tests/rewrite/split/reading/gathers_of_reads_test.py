"""Which gathers of a variable's rows read a copy of it instead."""

from __future__ import annotations

import pytest
import tensorflow as tf

from rewrite.split.reading.merge_reads import gathers_of_reads, merge_reads
from tests.rewrite.split.rules.run_rule import ints
from tests.rewrite.split.run_step import assert_same_steps, flat_graph

v1 = tf.compat.v1
IDS = {"ids:0": ints(7, 6)}
LARGE = 3000  # rows of 4 numbers: more than a message


def step_of(rows, is_product, writes=True, waits=False):
    """A step that embeds, and predicts with the same table if it is to be a product."""
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, [6], "ids")
        table = v1.get_variable("table", [rows, 4], use_resource=True)
        with tf.control_dependencies([tf.no_op()] if waits else []):
            embedded = tf.gather(table, ids)
        if is_product:
            embedded = tf.nn.softmax(tf.matmul(embedded, table, transpose_b=True))
        loss = tf.reduce_sum(tf.square(embedded), name="loss")
        fetches = [loss.name]
        if writes:
            gradients = zip(v1.gradients(loss, [table]), [table], strict=True)
            fetches.append(
                v1.train.GradientDescentOptimizer(0.1).apply_gradients(gradients, name="train").name
            )
    return flat_graph(graph, IDS, fetches)


def counts(flat):
    types = [node.op for node in flat.graph_def.node]
    return tuple(types.count(op) for op in ("ResourceGather", "GatherV2", "ReadVariableOp"))


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(("rows", "is_product"), [(LARGE, True), (50, False)])
def test_a_table_that_is_multiplied_or_small_is_read_once(rows, is_product, writes):
    flat = step_of(rows, is_product, writes)
    changed = merge_reads(gathers_of_reads(flat))
    assert counts(changed) == (0, 1, 1)
    assert len(changed.origins) == len(changed.graph_def.node)
    assert gathers_of_reads(changed) is changed
    assert_same_steps(flat, changed, IDS, 1e-6, 1e-6)


def test_rows_of_a_large_table_that_nothing_else_reads_stay_with_it():
    flat = step_of(LARGE, False)
    assert gathers_of_reads(flat) is flat


def test_attributes_that_a_saved_model_leaves_out_stay_out():
    """TensorFlow refuses functions with attributes that have no value."""
    flat = step_of(LARGE, False)
    for node in flat.graph_def.node:
        node.attr.pop("batch_dims", None)
    assert gathers_of_reads(flat) is flat
    assert not any("batch_dims" in node.attr for node in flat.graph_def.node)


def test_a_gather_that_waits_for_something_stays():
    flat = step_of(50, False, waits=True)
    assert gathers_of_reads(flat) is flat


def test_a_gather_that_a_write_may_come_before_stays():
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, [6], "ids")
        table = v1.get_variable("table", [50, 4], use_resource=True)
        tf.identity(tf.gather(table, ids), name="rows")
        tf.raw_ops.AssignAddVariableOp(resource=table.handle, value=tf.ones([50, 4]), name="write")
    flat = flat_graph(graph, IDS, ["rows:0", "write"])
    assert gathers_of_reads(flat) is flat


def test_a_gather_that_a_write_through_another_handle_may_come_before_stays():
    """Two ops may hold handles of one variable: what one of them writes, the other reads."""
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, [6], "ids")
        handles = [
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[50, 4], shared_name="table", name=name)
            for name in ("one", "other")
        ]
        rows = tf.raw_ops.ResourceGather(resource=handles[0], indices=ids, dtype=tf.float32)
        tf.identity(rows, name="rows")
        tf.raw_ops.AssignAddVariableOp(resource=handles[1], value=tf.ones([50, 4]), name="write")
    flat = flat_graph(graph, IDS, ["rows:0", "write"])
    assert gathers_of_reads(flat) is flat
