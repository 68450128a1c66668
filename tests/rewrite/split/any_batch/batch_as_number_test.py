"""Numbers that depend on the batch stay the whole batch's: a divisor that became a shard's would
scale a loss or a gradient by M, silently.

Each loss is compared with its gradients for parts that differ in size, with a batch that is fixed,
and with sizes that the step was not split at.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.building.shapes import infer_known
from graphs.source_model import TensorSpec
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.decision import Split
from tests.rewrite.split.rules.losses import BATCH, LOSSES, batch_of
from tests.rewrite.split.rules.more_losses import MORE_LOSSES
from tests.rewrite.split.run_step import run, split_open_step

v1 = tf.compat.v1


TOGETHER = 7
ALL = {**LOSSES, **MORE_LOSSES}
GROUPS = [list(ALL)[begin : begin + TOGETHER] for begin in range(0, len(ALL), TOGETHER)]
"""Losses of one graph: that is several times as fast as a graph for each."""


def step_of(names, size):
    """A graph of losses, with their gradients; size None: any."""
    shapes = {key: (size, *array.shape[1:]) for key, array in batch_of(BATCH).items()}
    with tf.Graph().as_default() as graph:
        fed = [
            v1.placeholder(array.dtype, shapes[key], key[:-2])
            for key, array in batch_of(BATCH).items()
        ]
        w = tf.constant(np.random.default_rng(8).normal(size=(4, 4)).astype(np.float32))
        x = tf.einsum("btc,cd->btd", fed[0], w)
        tensors = []
        for name in names:
            with tf.name_scope("".join(filter(str.isalnum, name.title()))):
                loss = ALL[name](x, *fed[1:])
                tensors += [loss, *tf.gradients(loss, [w, fed[0]])]
    return graph, [tensor.name for tensor in tensors if tensor is not None]


def opened(graph, fetches):
    specs = [TensorSpec(n, a.dtype.name, a.shape) for n, a in batch_of(BATCH).items()]
    return flatten(graph.as_graph_def(), specs, fetches)


def assert_same(flat, split, size):
    feeds = {key: array for key, array in batch_of(size).items() if key[:-2] in flat.nodes}
    whole, _ = run(flat.graph_def, flat.fetches, feeds)
    parts, _ = run(split.graph_def, split.fetches, feeds)
    for fetch, one, other in zip(flat.fetches, whole, parts, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-5, err_msg=f"{fetch} of {size}")


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_a_fixed_batch(names):
    flat = opened(*step_of(names, BATCH))
    properties = infer_known(flat)
    decisions = decide(flat, properties, BATCH, dict.fromkeys(batch_of(BATCH), 0))
    assert sum(isinstance(a, Split) for a in decisions.answer_of_op.values()) > 20
    assert_same(flat, build_step(flat, decisions, 3), BATCH)


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_any_batch(names):
    flat = opened(*step_of(names, None))
    _, split = split_open_step(flat, BATCH, 2, dict.fromkeys(batch_of(BATCH), 0))
    for size in (BATCH, 7):
        assert_same(flat, split, size)
