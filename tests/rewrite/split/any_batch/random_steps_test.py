"""Random steps of any batch size compute the same in parts, at sizes that nobody decided for."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.shapes import infer_known
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.building.build_step import build_step
from tests.rewrite.split.any_batch.random_steps import BATCH, LENGTH, random_step
from tests.rewrite.split.run_step import run

QUICK = {*range(6), 33}
"""The last one has rows that are as many as the batch at one length only, and was never ready."""
SEEDS = [pytest.param(n, marks=() if n in QUICK else pytest.mark.fuzz) for n in range(300)]
SIZES = [(BATCH, LENGTH), (2, 1), (3, 4), (7, 2), (25, 9), (41, LENGTH), (320, 3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_computes_the_same_in_parts(seed):
    step = random_step(seed)
    flat = step.flat
    decisions = decide_open(flat, infer_known(flat), step.batch, step.axis_of_feed, step.open_axes)
    if decisions is None:  # it runs with no other size that was tried
        return
    assert decisions.takes_any_batch
    split = build_step(flat, decisions, 2)
    for graph_def in (flat.graph_def, split.graph_def):
        for node in graph_def.node:
            if node.op == "Placeholder":
                for axis in step.open_axes["x:0"]:
                    node.attr["shape"].shape.dim[axis].size = -1
    compared = 0
    for batch, length in SIZES:
        given = step.arrays(batch, length)
        try:
            whole, _ = run(flat.graph_def, flat.fetches, given)
        except tf.errors.OpError:  # neither does the unsplit step
            continue
        parts, _ = run(split.graph_def, split.fetches, given)
        for one, other in zip(whole, parts, strict=True):
            np.testing.assert_allclose(
                other, one, rtol=1e-4, atol=1e-4, err_msg=f"{step.words} of {batch}, {length}"
            )
        compared += 1
    assert compared, step.words
