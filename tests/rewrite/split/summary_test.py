"""How a step was split, in numbers."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.shapes import infer
from graphs.pricing.node_work import node_work
from rewrite.split.summary import WholeBecause, split_work, summary_of
from tests.rewrite.split.run_step import flat_graph, split_step

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def step():
    """A product of 4x3 by 3x5, which is split, and one of its sums with itself, which is not."""
    x = np.ones((4, 3), np.float32)
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(tf.float32, x.shape, "x")
        product = tf.matmul(fed, np.ones((3, 5), np.float32), name="product")
        total = tf.reduce_sum(product, 0, keepdims=True, name="total")
        tf.matmul(total, total, transpose_b=True, name="square")
        tf.cumsum(product, 0, name="running")
    flat = flat_graph(graph, {"x:0": x}, ["square:0", "running:0"])
    return flat, *split_step(flat, 4, 2, {"x:0": 0})


def test_counts(step):
    summary = summary_of(*step)
    assert summary.sharded_ops == 2
    assert (summary.sums, summary.joins, summary.cuts) == (1, 1, 1)
    reason = "it works across the batch, along the axis that is cut"
    assert summary.whole_because == [WholeBecause("Cumsum", 1, reason)]


def test_share_of_the_work(step):
    flat, decisions, _ = step
    asked = node_work(flat, infer(flat))
    flops = dict(zip(flat.nodes, np.nan_to_num(asked.work.flops), strict=True))
    expected = (flops["product"] + flops["total"]) / sum(flops.values())
    assert flops["product"] == 2 * 4 * 3 * 5
    work = split_work(flat, decisions, asked)
    assert work.split == pytest.approx(expected)
    (of_whole,) = work.whole.items()
    assert of_whole[0] == ("Cumsum", "it works across the batch, along the axis that is cut")
    assert work.split + work.beside + of_whole[1] == pytest.approx(1.0)
    assert 0.7 < expected < 1
