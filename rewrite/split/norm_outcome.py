"""Runs a batch normalisation fused and apart, and compares; it is all TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.errors import one_line
from rewrite.split.differences import difference
from rewrite.split.norm_cases import NormCase
from rewrite.split.op_case import CaseOutcome

v1 = tf.compat.v1
_TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2}
_TOLERANCE = 1e-3
"""Both add up millions of float32 numbers, in another order."""


def norm_outcome(case: NormCase) -> CaseOutcome:
    """What comes of running one."""
    feeds = _made_up(case)
    try:
        fused = _run(case.fused, [old for old, _ in case.outputs], feeds)
    except Exception as error:  # a kernel that is not there
        return CaseOutcome(not_proven=one_line(error))
    try:
        apart = _run(case.apart, [new for _, new in case.outputs], feeds)
    except Exception as error:  # whatever TensorFlow raises
        return CaseOutcome(differs=f"only apart it fails: {one_line(error)}")
    dtypes = {dtype for _, dtype in case.feeds.values()}
    tolerance = max(_TOLERANCES.get(dtype, _TOLERANCE) for dtype in dtypes)
    for (old, _), one, other in zip(case.outputs, fused, apart, strict=True):
        how = difference(one, other, tolerance, [])
        if how:
            return CaseOutcome(differs=f"apart, {old!r} is another one: {how}")
    return CaseOutcome()


def _run(
    graph_def: bytes, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        v1.import_graph_def(v1.GraphDef.FromString(graph_def), name="")
        there = {op.name for op in graph.get_operations()}
        fed = {f"{name}:0": array for name, array in feeds.items() if name in there}
        return [np.asarray(value) for value in session.run(list(fetches), fed)]


def _made_up(case: NormCase) -> dict[str, np.ndarray]:
    """Images around a mean that is not 0; what there is one of for each channel is positive."""
    rng = np.random.default_rng(7)
    feeds = {}
    for name, (shape, dtype) in case.feeds.items():
        is_image = len(shape) > 1
        value = rng.standard_normal(shape) + 0.5 if is_image else rng.uniform(0.2, 0.9, shape)
        feeds[name] = value.astype(tf.as_dtype(dtype).as_numpy_dtype)
    return feeds
