"""Runs a graph of one op whole and in parts, forward and backward."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rewrite.split.decision import Split
from tests.rewrite.split.run_step import flat_graph, run, split_step

v1 = tf.compat.v1
BATCH = 5


def floats(*shape):
    """Random numbers, the same each time."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def ints(most, *shape):
    """Random whole numbers below `most`."""
    return np.random.default_rng(1).integers(0, most, size=shape).astype(np.int32)


def check_case(arrays, batch_axes, build, is_split, tolerance=2e-5):
    """The split graph computes the same, gradients too, in even and uneven parts.

    Args:
      arrays: what is fed.
      batch_axes: which axis of each is the batch; None for one that stays whole.
      build: makes the op's result of the fed tensors.
      is_split: whether the op works on parts; each shard may well have all of it.
      tolerance: relative and absolute.
    """
    feeds = {f"x{i}:0": array for i, array in enumerate(arrays)}
    with tf.Graph().as_default() as graph:
        inputs = [v1.placeholder(a.dtype, a.shape, f"x{i}") for i, a in enumerate(arrays)]
        result = build(*inputs)
        fetches = [result.name, *(g.name for g in _gradients(result, inputs))]
    flat = flat_graph(graph, feeds, fetches)
    axes = {f"x{i}:0": axis for i, axis in enumerate(batch_axes) if axis is not None}
    batch = next(a.shape[x] for a, x in zip(arrays, batch_axes, strict=True) if x is not None)
    whole, _ = run(flat.graph_def, flat.fetches, feeds)
    for num_shards in (2, 3):
        decisions, split = split_step(flat, batch, num_shards, axes)
        answer = decisions.answer_of_op[result.op.name]
        assert (isinstance(answer, Split) and not answer.is_repeated) == bool(is_split)
        parts, _ = run(split.graph_def, split.fetches, feeds)
        for name, one, other in zip(fetches, whole, parts, strict=True):
            np.testing.assert_allclose(
                other, one, rtol=tolerance, atol=tolerance, err_msg=name, strict=True
            )


def _gradients(result, inputs):
    """Of a weighted sum of the result, for all inputs that have one."""
    if not result.dtype.is_floating or not result.shape.is_fully_defined():
        return []
    weights = tf.constant(np.random.default_rng(7).normal(size=result.shape), result.dtype)
    try:
        gradients = tf.gradients(tf.reduce_sum(result * weights), inputs)
    except LookupError:
        return []
    return [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
