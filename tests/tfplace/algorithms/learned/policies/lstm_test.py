"""Tests of tfplace.algorithms.learned.policies.seq2seq."""

import math

import numpy as np
import tensorflow as tf

from tfplace.algorithms.learned.policies.seq2seq import lstm, lstm_cell


def test_cell_by_hand():
    # i = f = o = σ(0) = ½, u = tanh(1): c = ½·4 + ½·tanh 1, h = ½·tanh c
    hidden, cell, _ = lstm_cell(tf.constant([[0.0, 0.0, 0.0, 1.0]]), tf.constant([[4.0]]))
    expected = 2.0 + 0.5 * math.tanh(1.0)
    np.testing.assert_allclose(cell, [[expected]], rtol=1e-6)
    np.testing.assert_allclose(hidden, [[0.5 * math.tanh(expected)]], rtol=1e-6)


def unrolled(gates, kernel, hidden, cell):
    hiddens = []
    for step in range(gates.shape[0]):
        hidden, cell, _ = lstm_cell(gates[step] + tf.matmul(hidden, kernel), cell)
        hiddens.append(hidden)
    return tf.stack(hiddens), cell


def test_gradient_is_that_of_the_unrolled_loop():
    rng = np.random.default_rng(0)
    shapes = [(5, 2, 12), (3, 12), (2, 3), (2, 3)]
    inputs = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]
    weight = tf.constant(rng.normal(size=(5, 2, 3)), tf.float32)
    results = []
    for layer in (lstm, unrolled):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            hiddens, cell = layer(*inputs)
            value = tf.reduce_sum(weight * hiddens) + tf.reduce_sum(cell * cell)
        results.append([value, *tape.gradient(value, inputs)])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
