"""Each rule: an op on the whole batch gives what the op on parts of it gives, put together.

Every case is a graph of one op (with what it needs) whose fed inputs are cut. The split graph has
to compute the same for even and uneven parts, and the op has to be split where that is expected.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from rewrite.split.states import Sharded
from tests.rewrite.split.rules.run_rule import BATCH, check_case, floats, ints
from tests.rewrite.split.run_step import flat_graph, run, split_step

v1 = tf.compat.v1
raw = tf.raw_ops


X, Y = floats(BATCH, 4), floats(BATCH, 4) + 3.0
IMAGES = floats(BATCH, 6, 6, 2)
FILTER = floats(3, 3, 2, 3)


def gradient_of_gather(x, ids):
    """Adds rows up within each entry of the batch."""
    gathered = tf.gather(x, ids, axis=1, batch_dims=1)
    return tf.gradients(gathered, x, grad_ys=[gathered * gathered])[0]


# {name: (what is fed, axes of the batch, the op, whether it is split)}
CASES = {
    "unary": ([X], [0], lambda x: tf.tanh(x), True),
    "binary": ([X, Y], [0, 0], lambda x, y: x * y, True),
    "a whole row is broadcast": ([X], [0], lambda x: x / tf.constant(floats(4)), True),
    "a whole matrix is cut": ([X], [0], lambda x: x - tf.constant(floats(BATCH, 4)), True),
    "two axes, the smaller joined": ([X, X.T.copy()], [0, 1], lambda x, y: x + tf.transpose(y), 1),
    "comparison": ([X, Y], [0, 0], lambda x, y: tf.cast(x + 3.0 > y, tf.float32), True),
    "select": ([X, Y], [0, 0], lambda x, y: raw.Select(condition=x[:, 0] > 0, x=x, y=y), True),
    "cast": ([X], [0], lambda x: tf.cast(x, tf.int32), True),
    "bias": ([X], [0], lambda x: tf.nn.bias_add(x, floats(4)), True),
    "bias on axis 1": ([X], [1], lambda x: raw.BiasAdd(value=x, bias=tf.constant(floats(4))), 1),
    "softmax": ([X], [0], lambda x: tf.nn.softmax(x), True),
    "softmax across": ([X], [1], lambda x: raw.Softmax(logits=x), False),
    "matmul": ([X], [0], lambda x: tf.matmul(x, floats(4, 3)), True),
    "matmul transposed": ([X], [0], lambda x: tf.matmul(x, floats(3, 4), transpose_b=True), True),
    "weight gradient": ([X, Y], [0, 0], lambda x, y: tf.matmul(x, y, transpose_a=True), True),
    "rows by rows": ([X], [0], lambda x: tf.matmul(x, x, transpose_b=True), True),
    "batched matmul": ([floats(BATCH, 2, 3)], [0], lambda x: tf.matmul(x, x, transpose_b=True), 1),
    "einsum": ([floats(BATCH, 2, 3)], [0], lambda x: tf.einsum("bij,jk->bik", x, floats(3, 2)), 1),
    "einsum of whatever lies before": (
        [floats(BATCH, 2, 3)], [0], lambda x: tf.einsum("...ij,...jk->...ik", x, floats(3, 2)), 1,
    ),
    "einsum of two that lie before": (
        [floats(BATCH, 2, 3, 2)], [0],
        lambda x: tf.einsum("...ij,...jk->...ik", tf.transpose(x, [0, 2, 1, 3]), floats(3, 2, 2)),
        True,
    ),
    "einsum that sums what lies before": (
        [floats(BATCH, 2, 3)], [0], lambda x: tf.einsum("b...j,b...k->...jk", x, x), True,
    ),
    "einsum of a matrix for all": (
        [floats(BATCH, 2, 3)], [0],
        lambda x: tf.einsum("...ij,...jk->...ik", x, tf.constant(floats(1, 3, 2))), True,
    ),
    "einsum of diagonals": ([floats(BATCH, 3, 3)], [0], lambda x: tf.einsum("bii->bi", x), True),
    "einsum of a diagonal": ([floats(BATCH, BATCH)], [0], lambda x: tf.einsum("ii->i", x), False),
    "einsum sum": ([floats(BATCH, 2, 3)], [0], lambda x: tf.einsum("bij,bik->jk", x, x), True),
    "sum": ([X], [0], lambda x: tf.reduce_sum(x, 0), True),
    "sum of all": ([X], [0], lambda x: tf.reduce_sum(x), True),
    "sum of rows": ([X], [0], lambda x: tf.reduce_sum(x, 1, keepdims=True), True),
    "mean": ([X], [0], lambda x: tf.reduce_mean(x, 0, keepdims=True), True),
    "mean of all": ([X], [0], lambda x: tf.reduce_mean(x), True),
    "mean of whole numbers": ([ints(9, BATCH)], [0], lambda x: tf.reduce_mean(x), False),
    "max": ([X], [0], lambda x: tf.reduce_max(x, 0), True),
    "min": ([X], [0], lambda x: tf.reduce_min(x, [-2]), True),
    "prod": ([X], [0], lambda x: tf.reduce_prod(x, 0), True),
    "all": ([X], [0], lambda x: tf.reduce_all(x > -9.0, 0), True),
    "any": ([X], [0], lambda x: tf.reduce_any(x > 0.9, 0), True),
    "l2 loss": ([X], [0], lambda x: tf.nn.l2_loss(x), True),
    "l2 loss of a sum": ([X], [0], lambda x: tf.nn.l2_loss(tf.reduce_sum(x, 0)), False),
    "root of a sum": ([X], [0], lambda x: tf.sqrt(tf.reduce_sum(x * x, 0)), False),
    "sum plus whole": ([X], [0], lambda x: tf.reduce_sum(x, 0) + floats(4), False),
    "sums added": ([X], [0], lambda x: tf.add_n([tf.reduce_sum(x, 0), tf.reduce_sum(x * x, 0)]), 1),
    "bias gradient": ([X], [0], lambda x: raw.BiasAddGrad(out_backprop=x), True),
    "cumsum": ([X], [0], lambda x: tf.cumsum(x, 1), True),
    "cumsum across": ([X], [0], lambda x: tf.cumsum(x, 0), False),
    "argmax": ([X], [0], lambda x: tf.argmax(x, 1), True),
    "argmax across": ([X], [0], lambda x: tf.argmax(x, 0), False),
    "cross entropy": (
        [X, Y], [0, 0], lambda x, y: tf.nn.softmax_cross_entropy_with_logits(y, x), True,
    ),
    "sparse cross entropy": (
        [X, ints(4, BATCH)], [0, 0],
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x), True,
    ),
    "convolution": ([IMAGES], [0], lambda x: tf.nn.conv2d(x, FILTER, 1, "SAME"), True),
    "convolution's input gradient": (
        [floats(BATCH, 6, 6, 3)], [0],
        lambda g: raw.Conv2DBackpropInput(
            input_sizes=tf.constant([BATCH, 6, 6, 2]), filter=FILTER, out_backprop=g,
            strides=[1, 1, 1, 1], padding="SAME"), True,
    ),
    "convolution's filter gradient": (
        [IMAGES, floats(BATCH, 6, 6, 3)], [0, 0],
        lambda x, g: raw.Conv2DBackpropFilter(
            input=x, filter_sizes=tf.constant([3, 3, 2, 3]), out_backprop=g,
            strides=[1, 1, 1, 1], padding="SAME"), True,
    ),
    "max pool": ([IMAGES], [0], lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), True),
    "average pool's gradient": (
        [floats(BATCH, 3, 3, 2)], [0],
        lambda g: raw.AvgPoolGrad(
            orig_input_shape=tf.constant([BATCH, 6, 6, 2]), grad=g, ksize=[1, 2, 2, 1],
            strides=[1, 2, 2, 1], padding="VALID"), True,
    ),
    "resize": ([IMAGES], [0], lambda x: tf.image.resize(x, [3, 3]), True),
    "local response": ([IMAGES], [0], lambda x: tf.nn.lrn(x), True),
    "flatten": ([IMAGES], [0], lambda x: tf.reshape(x, [BATCH, -1]), True),
    "batch inside": ([floats(3, BATCH, 2)], [1], lambda x: tf.reshape(x, [3 * BATCH, 2]), True),
    "batch apart again": (
        [floats(3, BATCH, 2)], [1],
        lambda x: tf.tanh(tf.reshape(tf.reshape(x, [3 * BATCH, 2]), [3, BATCH, 2])), True,
    ),
    "batch spread": ([floats(4, 3)], [0], lambda x: tf.reshape(x, [2, 2, 3]), False),
    "expand": ([X], [0], lambda x: tf.expand_dims(x, 0), True),
    "squeeze": ([floats(BATCH, 1, 4)], [0], lambda x: tf.squeeze(x), True),
    "squeeze of nothing": ([X], [0], lambda x: tf.squeeze(x), True),
    "transpose": ([IMAGES], [0], lambda x: tf.transpose(x, [3, 1, 0, 2]), True),
    "stack": ([X, Y], [0, 0], lambda x, y: tf.stack([x, y], 1), True),
    "unstack": ([X], [0], lambda x: tf.unstack(x, axis=1)[2], True),
    "concatenate": ([X, Y], [0, 0], lambda x, y: tf.concat([x, y], -1), True),
    "batches one behind another": ([X, Y], [0, 0], lambda x, y: tf.concat([x, y], 0), True),
    "batches beside constants": ([X, Y], [0, 0], lambda x, y: tf.concat([x, Y * 1.0, y], 0), True),
    "a batch and fewer rows": ([X], [0], lambda x: tf.concat([x, Y[:4]], 0), False),
    "a batch and a queue": ([X], [0], lambda x: tf.concat([x, Y, Y], 0), False),
    "batches of two rows each": (
        [X, Y], [0, 0], lambda x, y: tf.concat([tf.repeat(x, 2, 0), tf.repeat(y, 2, 0)], 0), True,
    ),
    "batches taken apart": (
        [X, Y], [0, 0], lambda x, y: tf.split(tf.concat([x, y], 0), 2, 0)[1], True,
    ),
    "batches in unequal parts": (
        [X, Y], [0, 0],
        lambda x, y: tf.split(tf.concat([x, y, x], 0), [BATCH, 2 * BATCH], 0)[1], True,
    ),
    "batches in parts of batches": (
        [X, Y], [0, 0], lambda x, y: tf.split(tf.concat([x, y], 0), [4, 6], 0)[1], False,
    ),
    "the second batch": (
        [X, Y], [0, 0], lambda x, y: tf.slice(tf.concat([x, y, x], 0), [5, 1], [5, 2]), True,
    ),
    "the last batches": ([X, Y], [0, 0], lambda x, y: tf.concat([x, y, x], 0)[BATCH:, 1:], True),
    "the first batches": (
        [X, Y], [0, 0], lambda x, y: tf.concat([x, y, x], 0)[:, None][: 2 * BATCH], True,
    ),
    "the second of three": (
        [X, Y], [0, 0], lambda x, y: tf.concat([x, y, x], 0)[BATCH : 2 * BATCH, 2], True,
    ),
    "half of a batch more": (
        [X, Y], [0, 0], lambda x, y: tf.concat([x, y], 0)[: BATCH + 2], False,
    ),
    "zeros before and behind": (
        [X], [0], lambda x: tf.pad(x, [[BATCH, 2 * BATCH], [0, 1]]), True,
    ),
    "mirrored before": (
        [X], [0], lambda x: tf.pad(x, [[BATCH, 0], [0, 0]], "SYMMETRIC"), False,
    ),
    "a batch repeated": ([X], [0], lambda x: tf.tile(x, [3, 2]), True),
    "split": ([X], [0], lambda x: tf.split(x, 2, 1)[1], True),
    "slice": ([X], [0], lambda x: tf.slice(x, [0, 1], [BATCH, 2]), True),
    "slice across": ([X], [0], lambda x: tf.slice(x, [1, 0], [3, 4]), False),
    "strided slice": ([X], [0], lambda x: x[:, 1:3], True),
    "strided slice with an end": ([X], [0], lambda x: x[0:BATCH, ::2], True),
    "strided slice new axis": ([X], [0], lambda x: x[:, tf.newaxis, 2], True),
    "strided slice ellipsis": ([IMAGES], [0], lambda x: x[..., 1], True),
    "strided slice across": ([X], [0], lambda x: x[1:], False),
    "strided slice backwards": ([X], [0], lambda x: x[::-1], False),
    "strided slice's gradient": (
        [floats(BATCH, 2)], [0],
        lambda g: raw.StridedSliceGrad(
            shape=tf.constant([BATCH, 4]), begin=tf.constant([0, 1]), end=tf.constant([0, 3]),
            strides=tf.constant([1, 1]), dy=g, begin_mask=1, end_mask=1), True,
    ),
    "gradient of every other row": (
        [floats(BATCH, 2 * BATCH)], [0],
        lambda g: raw.StridedSliceGrad(
            shape=tf.constant([2 * BATCH, 2 * BATCH]), begin=tf.constant([0, 0]),
            end=tf.constant([2 * BATCH, 2 * BATCH]), strides=tf.constant([2, 1]), dy=g), False,
    ),
    "pad": ([X], [0], lambda x: tf.pad(x, [[0, 0], [1, 2]]), True),
    "pad across": ([X], [0], lambda x: tf.pad(x, [[1, 0], [0, 0]]), False),
    "tile": ([X], [0], lambda x: tf.tile(x, [1, 2]), True),
    "broadcast": ([floats(BATCH, 1)], [0], lambda x: tf.broadcast_to(x, [2, BATCH, 4]), True),
    "reverse": ([X], [0], lambda x: tf.reverse(x, [1]), True),
    "roll across": ([X], [0], lambda x: tf.roll(x, 1, 0), False),
    "gather by ids": ([ints(6, BATCH, 2)], [0], lambda i: tf.gather(floats(6, 3), i), True),
    "gather columns": ([X], [0], lambda x: tf.gather(x, [2, 0], axis=1), True),
    "gather rows": ([X], [0], lambda x: tf.gather(x, [2, 0], axis=0), False),
    "gather in each": (
        [X, ints(4, BATCH, 2)], [0, 0], lambda x, i: tf.gather(x, i, axis=1, batch_dims=1), True,
    ),
    "gather in each, counted from the last": (
        [X, ints(4, BATCH, 2)], [0, 0],
        lambda x, i: raw.GatherV2(params=x, indices=i, axis=1, batch_dims=-1), True,
    ),
    "gather in each, its gradient": (
        [floats(BATCH, 4, 3), ints(4, BATCH, 2)], [0, 0], gradient_of_gather, True,
    ),
    "one hot": ([ints(4, BATCH)], [0], lambda i: tf.one_hot(i, 4), True),
    "a loss by shape": (
        [X], [0], lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(x)[0], tf.float32), False,
    ),
    "a loss by size": ([X], [0], lambda x: tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32), 0),
    "a loss by a constant": ([X], [0], lambda x: tf.reduce_sum(x) / float(BATCH), False),
    "no rule": ([X], [0], lambda x: tf.linalg.svd(x, compute_uv=False), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_parts_put_together_are_the_whole(name):
    check_case(*CASES[name])


def test_an_op_that_stays_whole_says_why():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, X.shape, "x0")
        tf.cumsum(x, 0, name="sum")
        fetch = graph.get_operation_by_name("sum").outputs[0].name
    decisions, _ = split_step(flat_graph(graph, {"x0:0": X}, [fetch]), BATCH, 2, {"x0:0": 0})
    assert decisions.answer_of_op["sum"].reason == (
        "it works across the batch, along the axis that is cut"
    )


def test_attributes_that_a_saved_model_leaves_out_have_their_defaults():
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, (BATCH, 3), "x0")
        tf.one_hot(ids, 4, name="hot")
        fetch = graph.get_operation_by_name("hot").outputs[0].name
    flat = flat_graph(graph, {"x0:0": ints(4, BATCH, 3)}, [fetch])
    del flat.nodes["hot"].attr["axis"]
    before = flat.graph_def.SerializeToString(deterministic=True)
    decisions, _ = split_step(flat, BATCH, 2, {"x0:0": 0})
    assert flat.graph_def.SerializeToString(deterministic=True) == before
    assert decisions.state_of_tensor["hot:0"] == Sharded(0)


NARROW = {
    "a mean": lambda x: tf.reduce_mean(x),
    "a sum that is divided": lambda x: tf.reduce_sum(x) / 8,
    "a sum that is cast": lambda x: tf.cast(tf.reduce_sum(x, 0), tf.float32) / 8,
    "a product that is cast": lambda x: tf.cast(
        tf.matmul(x, x * 0 + 1, transpose_a=True), "float32"
    ),
}


@pytest.mark.parametrize("what", NARROW)
def test_what_overflows_in_float16_overflows_in_parts(what):
    """A step that scales its loss decides by that whether it updates anything."""
    x = np.full((BATCH, 2), 20000, np.float16)
    with tf.Graph().as_default() as graph:
        result = NARROW[what](v1.placeholder(tf.float16, x.shape, "x"))
    flat = flat_graph(graph, {"x:0": x}, [result.name])
    whole, _ = run(flat.graph_def, flat.fetches, {"x:0": x})
    _, split = split_step(flat, BATCH, 3, {"x:0": 0})
    parts, _ = run(split.graph_def, split.fetches, {"x:0": x})
    assert np.all(np.isinf(whole[0])) and np.all(np.isinf(parts[0]))
