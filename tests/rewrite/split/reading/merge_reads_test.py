"""Reads of variables that are one and the same, and those that are not."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rewrite.split.reading.merge_reads import merge_reads
from tests.rewrite.split.run_step import assert_same_steps, flat_graph

v1 = tf.compat.v1
raw = tf.raw_ops


def read(handle, name):
    return raw.ReadVariableOp(resource=handle, dtype=tf.float32, name=name)


def handle_of(name, shared_name=""):
    return raw.VarHandleOp(dtype=tf.float32, shape=[], shared_name=shared_name, name=name)


def reads_of(flat):
    return [node.name for node in flat.graph_def.node if node.op == "ReadVariableOp"]


def test_a_variable_that_is_never_written_is_read_once():
    with tf.Graph().as_default() as graph:
        rate, other = handle_of("rate"), handle_of("other")
        first, second = read(rate, "first"), read(rate, "second")
        with tf.control_dependencies([second]):
            tf.add(first, second * read(other, "of_other"), name="sum")
    flat = flat_graph(graph, {}, ["sum:0"])
    merged = merge_reads(flat)
    assert reads_of(merged) == ["first", "of_other"]
    [total] = [node for node in merged.graph_def.node if node.name == "mul"]
    assert list(total.input) == ["first", "of_other"]
    [waiting] = [node for node in merged.graph_def.node if node.name == "of_other"]
    assert list(waiting.input) == ["other", "^first"]
    assert len(merged.origins) == len(merged.graph_def.node)
    assert merge_reads(merged) is merged
    assert_same_steps(flat, merged, {}, 0.0, 0.0)


def test_reads_are_merged_where_all_writes_come_after_all_of_them():
    with tf.Graph().as_default() as graph:
        count = handle_of("count")
        first, second = read(count, "first"), read(count, "second")
        with tf.control_dependencies([first, second]):
            raw.AssignAddVariableOp(resource=count, value=1.0, name="write")
        tf.add(first, second, name="sum")
    flat = flat_graph(graph, {}, ["sum:0", "write"])
    merged = merge_reads(flat)
    assert reads_of(merged) == ["first"]
    waits = [name for node in merged.graph_def.node for name in node.input if name[0] == "^"]
    assert waits == ["^first"]  # of the number that is added
    assert_same_steps(flat, merged, {}, 0.0, 0.0)


def test_reads_before_and_after_a_write_stay_two():
    with tf.Graph().as_default() as graph:
        count = handle_of("count", "one")
        first = read(count, "first")
        with tf.control_dependencies([first]):
            write = raw.AssignAddVariableOp(resource=handle_of("twin", "one"), value=np.float32(1))
        with tf.control_dependencies([write]):
            second = read(count, "second")
        third = read(count, "third")  # nobody knows whether before or after
        tf.add_n([first, second, third], name="sum")
    flat = flat_graph(graph, {}, ["sum:0"])
    assert merge_reads(flat) is flat


def test_a_variable_that_something_unknown_holds_is_left_alone():
    with tf.Graph().as_default() as graph:
        count = handle_of("count")
        passed_on = tf.identity(count, name="passed_on")
        tf.add_n([read(count, "first"), read(count, "second"), read(passed_on, "x")], name="sum")
    flat = flat_graph(graph, {}, ["sum:0"])
    assert merge_reads(flat) is flat
