"""Prices by class of kernel, against kernels that others timed."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import spearmanr

from graphs.building.shapes import infer
from graphs.pricing.kernel_classes import class_numbers, kernels_of, rates_of
from tests.rewrite.split.traced_steps import flat_step
from tests.tables.kernel_cases import cases, predicted
from tests.tables.kernel_fit import held


@pytest.fixture(scope="module")
def against():
    return held(cases())


def test_deepbenchs_kernels_are_priced_within_15_percent(against):
    """Of each class and GPU, the median; and in their order."""
    rows = {key: each for key, each in against.items() if key[2] == "deepbench" and each[0] > 8}
    assert len(rows) == 30
    for (kind, gpu, _), (_, _, median, _, rank) in rows.items():
        assert 1 / 1.16 < median < 1.16, (kind, gpu, median)
        assert rank > (0.95 if kind == "product" else 0.87), (kind, gpu, rank)


@pytest.mark.parametrize("gpu", ["K80", "K40", "P100", "V100"])
def test_cdes_random_layers_are_in_order(gpu):
    """Its TensorFlow of 2018 takes half as long again for all of them: only the order counts."""
    own = [c for c in cases() if c.gpu == gpu and c.source == "cde" and c.kind != "product"]
    seconds = np.array([case.seconds for case in own])
    priced = predicted(own)
    assert spearmanr(priced, seconds)[0] > 0.95
    low, high = np.quantile(priced / seconds, [0.1, 0.9])
    assert high < 3 * low


def test_each_op_has_its_class():
    def step(x):
        wide = tf.nn.conv2d(x, tf.ones((5, 5, 4, 8)), 1, "SAME")
        tall = tf.nn.conv2d(x, tf.ones((7, 1, 4, 8)), 1, "SAME")
        same = tf.nn.conv2d(x, tf.ones((3, 3, 4, 8)), 1, "SAME")
        half = tf.nn.conv2d(x, tf.ones((3, 3, 4, 8)), 2, "SAME")
        one = tf.nn.relu(tf.nn.conv2d(x, tf.ones((1, 1, 4, 8)), 1, "SAME"))
        flat = tf.reshape(one, (6, 64 * 8)) @ tf.ones((64 * 8, 3))
        sums = [tf.reduce_sum(each) for each in (wide, tall, same, half, one)]
        return tf.add_n(sums) + tf.reduce_sum(flat)

    flat = flat_step(step, [tf.TensorSpec((6, 8, 8, 4), tf.float32, "x")], 6)
    found = kernels_of(flat, infer(flat))
    names = list(class_numbers())
    of = {
        (node.op, names[row["kind"]]): (row["small"], row["sums"])
        for node, row in zip(flat.graph_def.node, found, strict=True)
    }
    image = 6 * 8 * 8
    assert of["Conv2D", "wide"] == of["Conv2D", "3x3"] == of["Conv2D", "1x1"] == (8, image * 8)
    assert ("Conv2D", "convolution") in of
    assert of["MatMul", "product"] == (3, 18)
    assert of["Relu", "elementwise"] == (np.inf, np.inf)
    assert ("Sum", "normalisation") in of


def test_tf32_and_half_precision_are_faster_where_the_gpu_has_them():
    assert (rates_of("8.0", "tf32").rate > rates_of("8.0", "fp32").rate)[:3].all()
    assert (rates_of("3.7", "tf32").rate == rates_of("3.7", "fp32").rate).all()
    assert rates_of("8.6", "fp32") is not None
    assert rates_of("2.0", "fp32").op_seconds == rates_of("3.5", "fp32").op_seconds
    assert (rates_of("3.7", "fp32").half == rates_of("3.7", "fp32").rate).all()
    for precision in ("fp32", "tf32"):
        rates = rates_of("8.0", precision)
        assert (rates.half >= rates.rate).all() and rates.half[0] == 11.0
