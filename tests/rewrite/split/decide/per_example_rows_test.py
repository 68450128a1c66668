"""Rows that are added up within each batch entry are added up in each shard by itself."""

import copy
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from rewrite.pass_base import RewriteError
from rewrite.split.decide import loops
from rewrite.split.decision import Split, StayWhole
from rewrite.split.prove.ops.case_inputs import made_up
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.states import Sharded
from tests.rewrite.split.rules.run_rule import floats, ints
from tests.rewrite.split.run_step import flat_graph, run, split_step
from tests.rewrite.split.traced_steps import flat_step

v1 = tf.compat.v1
BATCH, ROWS, SHARDS = 5, 4, 2


def step_of(build):
    """The opened graph of what is built of x [5, 4, 3] and row numbers [5, 2]."""
    feeds = {"x:0": floats(BATCH, ROWS, 3), "ids:0": ints(ROWS, BATCH, 2)}
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [BATCH, ROWS, 3], "x")
        fetch = build(x, v1.placeholder(tf.int32, [BATCH, 2], "ids"))
    return flat_graph(graph, feeds, [fetch.name])


def of_gather(x, ids):
    gathered = tf.gather(x, ids, axis=1, batch_dims=1)
    return tf.gradients(gathered, x, grad_ys=[tf.square(gathered)])[0]


def by_hand(x, ids, block=ROWS, reads=True, more=0):
    """The same, with so many rows for each entry; without the gather its ids may be any.

    `more` segments have no rows.
    """
    starts = tf.constant(np.arange(BATCH, dtype=np.int32)[:, None] * block)
    rows = tf.gather(x, ids, axis=1, batch_dims=1) if reads else x[:, :2]
    flat = tf.reshape(ids + starts, [-1])
    return tf.math.unsorted_segment_sum(tf.reshape(rows, [-1, 3]), flat, BATCH * block + more)


def decided(build):
    flat = step_of(build)
    decisions, step = split_step(flat, BATCH, SHARDS, {"x:0": 0, "ids:0": 0})
    (sums,) = (node.name for node in flat.graph_def.node if node.op == "UnsortedSegmentSum")
    return flat, decisions, step, decisions.answer_of_op[sums]


def test_attributes_that_a_saved_model_leaves_out_stay_out():
    """TensorFlow refuses functions with attributes that have no value."""
    flat = step_of(lambda x, ids: by_hand(tf.gather(x, [0, 1, 2, 3], axis=1), ids))
    for node in flat.graph_def.node:
        if node.op == "GatherV2" and not node.attr["batch_dims"].i:
            del node.attr["batch_dims"]
    _, step = split_step(flat, BATCH, SHARDS, {"x:0": 0, "ids:0": 0})
    nodes = [*flat.graph_def.node, *step.graph_def.node]
    assert all(value.WhichOneof("value") for node in nodes for value in node.attr.values())


@pytest.mark.parametrize("build", [of_gather, by_hand])
def test_each_shard_adds_up_its_own_rows(build):
    _, _, step, answer = decided(build)
    rows = Sharded(0, 1, ROWS)
    assert (answer.outputs, answer.row_inputs) == ((rows,), {1: rows})
    assert not any("joined" in node.name for node in step.graph_def.node[:-1])


@pytest.mark.parametrize("change", [{"block": ROWS + 1}, {"reads": False}, {"more": 3}])
def test_row_numbers_that_may_be_of_another_entry_are_not(change):
    answer = decided(lambda x, ids: by_hand(x, ids, **change))[3]
    assert isinstance(answer, StayWhole) or not answer.row_inputs


def test_the_proof_finds_rows_counted_from_elsewhere():
    flat, decisions, step, _ = decided(of_gather)
    prove_joints(flat, decisions, step, SHARDS)
    wrong = copy.deepcopy(step.graph_def)
    nodes = {node.name: node for node in wrong.node}
    (moved,) = (node for node in wrong.node if "/rows/shard_1" in node.name)
    start = nodes[moved.input[1]].attr["value"].tensor
    assert tf.make_ndarray(start) == 3 * ROWS
    start.CopyFrom(tf.make_tensor_proto(np.int32(2 * ROWS)))
    with pytest.raises(RewriteError, match="wanted part 1"):
        changed = dataclasses.replace(step, graph_def=wrong)
        prove_joints(flat, decisions, changed, SHARDS)


def test_the_op_is_proven_on_rows_of_each_entry_itself():
    flat, decisions, _, answer = decided(of_gather)
    assert isinstance(answer, Split)
    (case,) = (c for c in op_cases(flat, decisions, SHARDS) if c.node.op == "UnsortedSegmentSum")
    ids, parts = made_up(case, 1, np.int32)
    assert (ids // ROWS).tolist() == np.repeat(np.arange(BATCH), 2).tolist()
    assert np.array_equal(np.concatenate([parts[0], parts[1] + 3 * ROWS]), ids)


def test_a_batch_of_thousands_is_split_as_well():
    batch = 1500  # more numbers than the shape or permutation of any tensor has
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [batch, ROWS, 3], "x")
        fetch = of_gather(x, v1.placeholder(tf.int32, [batch, 2], "ids"))
    feeds = {"x:0": floats(batch, ROWS, 3), "ids:0": ints(ROWS, batch, 2)}
    flat = flat_graph(graph, feeds, [fetch.name])
    decisions, _ = split_step(flat, batch, SHARDS, {"x:0": 0, "ids:0": 0})
    (sums,) = (node.name for node in flat.graph_def.node if node.op == "UnsortedSegmentSum")
    assert isinstance(decisions.answer_of_op[sums], Split)


def test_so_many_segments_as_the_data_says():
    """The number of segments is no row number: it has no dimension."""

    def build(x, ids):
        return tf.math.unsorted_segment_sum(x[:, 0], ids[:, 0], tf.reduce_max(ids) + 1)

    assert isinstance(decided(build)[3], StayWhole)


ROWS_IN_A_LOOP = {
    "added up": lambda y, ids: tf.tanh(tf.reshape(by_hand(y, ids), y.shape)),
    "gathered": lambda y, ids: (
        tf.tanh(tf.gather(y, tf.range(BATCH))) * tf.cast(ids[:, :1, None], tf.float32)
    ),
}


@pytest.mark.parametrize("name", ROWS_IN_A_LOOP)
def test_a_loop_that_counts_rows_of_the_batch_stays_whole(name, monkeypatch):
    """Nothing moves the row numbers of a shard's own function, nor is such a function proven."""

    def step(x, ids):
        build = ROWS_IN_A_LOOP[name]
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, build(y, ids)), (0, x))[1]

    x, ids = tf.TensorSpec((BATCH, ROWS, 3), tf.float32, "x"), tf.TensorSpec((BATCH, 2), tf.int32)
    flat = flat_step(step, [x, ids], BATCH)
    arrays = floats(BATCH, ROWS, 3), ints(ROWS, BATCH, 2)
    feeds = {spec.tensor: array for spec, array in zip(flat.feeds, arrays, strict=True)}
    axes = dict.fromkeys(feeds, 0)
    (loop,) = flat.unit_of_node
    decisions, split = split_step(flat, BATCH, SHARDS, axes)
    assert "names rows by where in the batch" in decisions.answer_of_op[loop].reason
    whole, parts = (run(each.graph_def, each.fetches, feeds)[0][0] for each in (flat, split))
    np.testing.assert_allclose(parts, whole, rtol=1e-6)
    monkeypatch.setattr(loops, "why_not_local", lambda *_: "")
    decisions, split = split_step(flat, BATCH, SHARDS, axes)
    with pytest.raises(RewriteError, match="wanted row numbers of its shard"):
        prove_joints(flat, decisions, split, SHARDS)
