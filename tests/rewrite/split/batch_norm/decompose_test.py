"""Batch normalisation in training, taken apart and split: what the fused kernels compute."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.shapes import infer
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.decision import Split
from tests.rewrite.split.run_step import flat_graph, run

v1 = tf.compat.v1
raw = tf.raw_ops
BATCH = 5
SHAPES = {"NHWC": (BATCH, 3, 2, 4), "NCHW": (BATCH, 4, 3, 2), "NDHWC": (BATCH, 3, 2, 2, 4),
          "NCDHW": (BATCH, 4, 2, 3, 2)}  # fmt: skip


def norm_graph(layout, dtype, factor, version, is_training=True, size=BATCH):
    """A step with a batch normalisation and its gradient; its feeds and fetches."""
    rng = np.random.default_rng(4)
    # A mean that is large beside the deviation: E[x^2] - E[x]^2 would be off.
    feeds = {
        "x:0": (rng.normal(size=SHAPES[layout]) + 30).astype(dtype),
        "d_y:0": rng.normal(size=SHAPES[layout]).astype(dtype),
    }
    scale, offset, mean, variance = np.abs(rng.normal(size=(4, 4))).astype(np.float32)
    empty = np.zeros([0], np.float32)
    is_fresh = is_training and factor == 1.0
    attrs = {"data_format": layout, "epsilon": 1e-2, "is_training": is_training}
    with tf.Graph().as_default() as graph:
        fed = [size, *SHAPES[layout][1:]]
        x, d_y = (v1.placeholder(a.dtype, fed, n[:-2]) for n, a in feeds.items())
        running = [empty, empty] if is_fresh else [mean, variance]
        norm = getattr(raw, f"FusedBatchNorm{version}")(
            x=tf.identity(x), scale=scale, offset=offset, mean=running[0], variance=running[1],
            exponential_avg_factor=factor, name="norm", **attrs,
        )  # fmt: skip
        reserved = {f"reserve_space_{i}": tf.identity(norm[2 + i]) for i in (1, 2)}
        if not is_training:
            reserved = {"reserve_space_1": mean, "reserve_space_2": variance}
        if version == "V3":
            reserved["reserve_space_3"] = norm[5]
        gradient = getattr(raw, f"FusedBatchNormGrad{version}")(
            y_backprop=d_y, x=x, scale=scale, name="gradient", **attrs, **reserved
        )
        fetches = [t.name for t in (norm[0], norm[1], norm[2], *gradient[:3])]
        tf.identity(norm[1], "reader_of_the_mean")
        tf.tanh(norm[0], "reader_of_the_images")
    return graph, feeds, [*fetches, "reader_of_the_mean:0", "reader_of_the_images:0"]


def compare(step, tolerance, num_shards=2, is_apart=True):
    graph, feeds, fetches = step
    flat = flat_graph(graph, feeds, fetches)
    properties, axes = infer(flat), dict.fromkeys(feeds, 0)
    apart, tensors = decompose_norms(flat, properties, BATCH, axes)
    assert (apart is not flat) == is_apart
    inferred = infer(apart)
    for name, shapes in inferred.shape_of.items():
        assert tensors.dtype_of[name] == inferred.dtype_of[name], name
        if "FusedBatchNorm" not in apart.nodes[name].op:  # what nobody reads has no shape
            assert [tuple(shape) for shape in tensors.shape_of[name]] == shapes, name
            assert tensors.bytes_of[name] == inferred.bytes_of[name], name
    decisions = decide(apart, tensors, BATCH, axes)
    split = build_step(apart, decisions, num_shards)
    whole, _ = run(flat.graph_def, flat.fetches, feeds)
    taken, _ = run(apart.graph_def, apart.fetches, feeds)
    parts, _ = run(split.graph_def, split.fetches, feeds)
    for name, one, two, three in zip(fetches, whole, taken, parts, strict=True):
        scale = np.abs(one.astype(np.float64)).max()
        np.testing.assert_allclose(two, one, rtol=tolerance, atol=tolerance * scale, err_msg=name)
        np.testing.assert_allclose(three, one, rtol=tolerance, atol=tolerance * scale, err_msg=name)
    return apart, decisions


@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_same_as_fused(layout, factor):
    apart, decisions = compare(norm_graph(layout, "float32", factor, "V3"), 2e-5, 3)
    for name in ("norm", "gradient"):
        assert isinstance(decisions.answer_of_op[name], Split)
    assert not [n for n in apart.graph_def.node if "Norm" in n.op and n.attr["is_training"].b]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("version", ["", "V2"])
def test_older_versions(layout, version):
    compare(norm_graph(layout, "float32", 1.0, version), 2e-5)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_have_wide_statistics(layout, dtype):
    dtype = tf.as_dtype(dtype).as_numpy_dtype
    compare(norm_graph(layout, dtype, 0.5, "V3"), 2e-3 if dtype == np.float16 else 2e-2)


@pytest.mark.parametrize("version", ["", "V2", "V3"])
def test_given_statistics_need_nothing_taken_apart(version):
    step = norm_graph("NHWC", "float32", 1.0, version, is_training=False)
    _, decisions = compare(step, 2e-5, 3, is_apart=False)
    for name in ("norm", "gradient"):
        assert isinstance(decisions.answer_of_op[name], Split)


def test_a_reader_of_what_is_reserved_keeps_all_whole():
    graph, feeds, fetches = norm_graph("NHWC", "float32", 1.0, "V3")
    _, decisions = compare((graph, feeds, [*fetches, "norm:4"]), 2e-5, is_apart=False)
    assert decisions.answer_of_op["norm"].reason == (
        "batch normalisation in training works across the batch"
    )


def test_whole_images_are_left_alone():
    graph, feeds, fetches = norm_graph("NHWC", "float32", 1.0, "V3")
    flat = flat_graph(graph, feeds, fetches)
    properties = infer(flat)
    assert decompose_norms(flat, properties, BATCH, {}) == (flat, properties)


def test_any_batch_size():
    graph, feeds, fetches = norm_graph("NHWC", "float32", 1.0, "V3", size=None)
    flat, axes = flat_graph(graph, feeds, fetches), dict.fromkeys(feeds, 0)
    apart, tensors = decompose_norms(flat, infer(flat), BATCH, axes)
    decisions = decide_open(apart, tensors, BATCH, axes, {feed: [0] for feed in feeds})
    split = build_step(apart, decisions, 2)
    larger = {name: np.concatenate([array, array[:2] * 2]) for name, array in feeds.items()}
    whole, _ = run(flat.graph_def, flat.fetches, larger)
    parts, _ = run(split.graph_def, split.fetches, larger)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)
