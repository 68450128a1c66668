"""Rules of rarer op types, as in rules_test."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.source_model import TensorSpec
from rewrite.split.states import Sharded
from tests.rewrite.split.rules.run_rule import BATCH, check_case, floats, ints
from tests.rewrite.split.run_step import split_step

v1 = tf.compat.v1
raw = tf.raw_ops
X, Y = floats(BATCH, 4), floats(BATCH, 4) + 3.0
MATRICES = floats(BATCH, 3, 3) + 4 * np.eye(3, dtype=np.float32)
IDS = ints(6, BATCH)
NOT_A_NUMBER = np.where(np.arange(BATCH)[:, None] == 1, np.float32(np.nan), X)


def spd(x):
    return tf.matmul(x, x, transpose_b=True) + tf.eye(3)


def complex_(x):
    return tf.complex(x, x + 1)


def of_unknown_number(x):
    """The same rows; how many, TensorFlow doesn't see."""
    return tf.boolean_mask(x, tf.reduce_max(x, tf.range(1, x.shape.rank)) > -99.0)


def quantized(x, is_given):
    return raw.QuantizeAndDequantizeV2(
        input=x, input_min=-2.0, input_max=2.0, range_given=is_given, num_bits=4
    )


def range_gradient(x, y, index, kind="", ends=(-1.0, 1.0)):
    gradient = getattr(raw, f"FakeQuantWithMinMaxVars{kind}Gradient")
    return gradient(gradients=x, inputs=y, min=tf.constant(ends[0]), max=tf.constant(ends[1]))[
        index
    ]


# {name: (what is fed, axes of the batch, the op, whether it is split)}
CASES = {
    "cholesky": ([MATRICES], [0], lambda x: tf.linalg.cholesky(spd(x)), True),
    "inverse": ([MATRICES], [0], lambda x: tf.linalg.inv(x), True),
    "determinant": ([MATRICES], [0], lambda x: tf.linalg.det(x), True),
    "log determinant": ([MATRICES], [0], lambda x: tf.linalg.slogdet(x)[1], True),
    "solve": ([MATRICES, floats(BATCH, 3, 2)], [0, 0], lambda a, b: tf.linalg.solve(a, b), True),
    "solve triangular": (
        [MATRICES, floats(BATCH, 3, 2)], [0, 0], lambda a, b: tf.linalg.triangular_solve(a, b), 1,
    ),
    "least squares": (
        [MATRICES, floats(BATCH, 3, 2)], [0, 0], lambda a, b: raw.MatrixSolveLs(
            matrix=a, rhs=b, l2_regularizer=tf.constant(0.1, tf.float64)), True,
    ),
    "qr": ([MATRICES], [0], lambda x: tf.linalg.qr(x)[1], True),
    "svd": ([MATRICES], [0], lambda x: raw.Svd(input=x)[0], True),
    "eigenvalues": ([MATRICES], [0], lambda x: raw.SelfAdjointEigV2(input=spd(x))[0], True),
    "square root": ([MATRICES], [0], lambda x: tf.linalg.sqrtm(spd(x)), True),
    "tridiagonal": (
        [floats(BATCH, 3, 4) + 3, floats(BATCH, 4, 2)], [0, 0],
        lambda d, b: raw.TridiagonalSolve(diagonals=d, rhs=b), True,
    ),
    "band": ([MATRICES], [0], lambda x: tf.linalg.band_part(x, 1, 0), True),
    "diagonal": ([X], [0], lambda x: tf.linalg.diag(x), True),
    "diagonal's part": ([MATRICES], [0], lambda x: tf.linalg.diag_part(x), True),
    "diagonal set": (
        [MATRICES, floats(BATCH, 3)], [0, 0], lambda x, d: tf.linalg.set_diag(x, d), True,
    ),
    "diagonal, old": ([X], [0], lambda x: raw.MatrixDiag(diagonal=x), True),
    "diagonal's part, old": ([MATRICES], [0], lambda x: raw.MatrixDiagPart(input=x), True),
    "matrices across": ([MATRICES[:, :, :1] + 0.0], [0], lambda x: raw.MatrixBandPart(
        input=tf.transpose(x, [1, 0, 2]), num_lower=1, num_upper=0), False),
    "fourier": ([X], [0], lambda x: tf.abs(tf.signal.fft(complex_(x))), True),
    "fourier 2": ([floats(BATCH, 4, 4)], [0], lambda x: tf.abs(tf.signal.fft2d(complex_(x))), True),
    "real fourier": ([X], [0], lambda x: tf.abs(tf.signal.rfft(x)), True),
    "inverse fourier": ([X], [0], lambda x: tf.signal.irfft(complex_(x)), True),
    "fourier across": ([X], [1], lambda x: tf.abs(raw.FFT(input=complex_(x))), False),
    "real part": ([X], [0], lambda x: tf.math.real(complex_(x)), True),
    "top": ([X], [0], lambda x: tf.nn.top_k(x, 2)[0], True),
    "sort": ([X], [0], lambda x: tf.sort(x, axis=-1), True),
    "sort across": ([X], [0], lambda x: tf.nn.top_k(tf.transpose(x), 2)[0], False),
    "in top": ([X, ints(4, BATCH)], [0, 0], lambda x, y: tf.math.in_top_k(y, x, 2), True),
    "nth": ([X], [0], lambda x: raw.NthElement(input=x, n=1), True),
    "search": ([X, Y], [0, 0], lambda x, y: raw.LowerBound(sorted_inputs=x, values=y), True),
    "cross product": (
        [floats(BATCH, 3), floats(BATCH, 3)], [0, 0], lambda x, y: tf.linalg.cross(x, y), True,
    ),
    "reverse sequences": (
        [X, ints(4, BATCH)], [0, 0], lambda x, n: tf.reverse_sequence(x, n, 1, batch_axis=0), True,
    ),
    "asked for a shape": ([X], [0], lambda x: tf.ensure_shape(x, [BATCH, None]), True),
    "bits": ([X], [0], lambda x: tf.bitcast(x, tf.int32), True),
    "wider bits": ([X], [0], lambda x: tf.bitcast(tf.reshape(x, [BATCH, 2, 2]), tf.float64), True),
    "narrower bits": ([X], [0], lambda x: tf.bitcast(x, tf.float16), True),
    "quantized": ([X], [0], lambda x: quantized(x, True), True),
    "quantized by what comes": ([X], [0], lambda x: quantized(x, False), False),
    "fake quantized": ([X], [0], lambda x: raw.FakeQuantWithMinMaxVars(
        inputs=x, min=-1.0, max=1.0), True),
    "a range's gradient": ([X, Y - 3], [0, 0], lambda x, y: range_gradient(x, y, 1), True),
    "ranges' gradient": (
        [X, Y - 3], [0, 0],
        lambda x, y: range_gradient(x, y, 2, "PerChannel", (-np.ones(4, "f"), np.ones(4, "f"))), 1,
    ),
    "bincount": ([IDS], [0], lambda i: raw.Bincount(arr=i, size=6, weights=floats(0)), True),
    "bincount of rows": ([ints(6, BATCH, 3)], [0], lambda i: raw.DenseBincount(
        input=i, size=6, weights=floats(0)), True),
    "bincount with weights": ([IDS, floats(BATCH)], [0, 0], lambda i, w: raw.DenseBincount(
        input=i, size=6, weights=w), True),
    "place of the largest, misread by Grappler": (
        [X], [0], lambda x: tf.argmax(tf.tanh(tf.identity(tf.sigmoid(x))), 1), False,
    ),
    "largest, misread by Grappler": ([X], [0], lambda x: tf.reduce_max(-x, 0), False),
    "place of the largest": ([X], [0], lambda x: tf.argmax(tf.sigmoid(tf.square(x)), 1), True),
    "which are there": ([IDS], [0], lambda i: raw.DenseBincount(
        input=i, size=6, weights=floats(0), binary_output=True), False),
    "histogram": ([X], [0], lambda x: tf.histogram_fixed_width(x, [-1.0, 1.0], 4), True),
    "rows by places": ([ints(2, BATCH, 2)], [0], lambda i: tf.gather_nd(floats(2, 2, 3), i), True),
    "rows of a variable by places": (
        [ints(2, BATCH, 2)], [0],
        lambda i: tf.gather_nd(tf.compat.v1.get_variable("v", (2, 2, 3), use_resource=True), i), 1,
    ),
    "rows by places, both cut": (
        [ints(2, BATCH, 1), X], [0, 0], lambda i, x: tf.gather_nd(x, i), True,
    ),
    "rows put in places": (
        [ints(2, BATCH, 1), X], [0, 0], lambda i, x: tf.scatter_nd(i, x, [2, 4]), True,
    ),
    "rows put in many places": (
        [ints(90, BATCH, 1), X], [0, 0], lambda i, x: tf.scatter_nd(i, x, [90, 4]), False,
    ),
    "truth values put in places": (
        [ints(2, BATCH, 1), X > 0], [0, 0], lambda i, x: tf.scatter_nd(i, x, [2, 4]), False,
    ),
    "compared with what doesn't fit": ([X], [0], lambda x: raw.Equal(
        x=x, y=floats(3), incompatible_shape_error=False), False),
    "segments": (
        [X, ints(2, BATCH)], [0, 0], lambda x, i: tf.math.unsorted_segment_sum(x, i, 2), True,
    ),
    "segments' maxima": ([ints(9, BATCH, 4), ints(2, BATCH)], [0, 0],
                         lambda x, i: tf.math.unsorted_segment_max(x, i, 2), True),
    "segments' minima, of NaN and what follows": (
        [NOT_A_NUMBER], [0], lambda x: tf.math.unsorted_segment_min(x, [0] * BATCH, 2), False,
    ),
    "segments of columns": (
        [X], [1], lambda x: tf.math.unsorted_segment_sum(x, tf.constant([0, 1, 0, 1, 1]), 2), True,
    ),
    "columns written over": (
        [X], [0],
        lambda x: tf.tensor_scatter_nd_update(tf.transpose(x), [[1], [3]], tf.transpose(x[:, :2])),
        True,
    ),
    "columns added to": (
        [X], [0],
        lambda x: tf.tensor_scatter_nd_add(tf.ones([4, BATCH]), [[1], [1]], tf.transpose(x[:, :2])),
        True,
    ),
    "entries written over": (
        [X], [0], lambda x: tf.tensor_scatter_nd_update(x, [[1]], x[:1]), False,
    ),
    "numbers as texts": ([X], [0], lambda x: tf.strings.to_hash_bucket_fast(
        tf.strings.as_string(x), 9), True),
    "many segments": (
        [X, ints(9, BATCH)], [0, 0], lambda x, i: tf.math.unsorted_segment_sum(x, i, 9), False,
    ),
    "sorted segments": ([X], [0], lambda x: tf.math.segment_sum(x, [0, 0, 1, 1, 2]), False),
    "gather, old": ([IDS], [0], lambda i: raw.Gather(params=floats(6, 3), indices=i), True),
    "concatenate, old": ([X, Y], [0, 0], lambda x, y: raw.Concat(concat_dim=1, values=[x, y]), 1),
    "bias, old": ([X], [0], lambda x: raw.BiasAddV1(value=x, bias=floats(4)), True),
    "mirrored": ([X], [0], lambda x: tf.pad(x, [[0, 0], [1, 2]], "REFLECT"), True),
    "cumulative": ([X], [0], lambda x: tf.math.cumulative_logsumexp(x, 1), True),
    "bessel": ([Y], [0], lambda x: tf.math.bessel_i0e(x), True),
    "buckets": ([X], [0], lambda x: raw.Bucketize(input=x, boundaries=[0.0, 1.0]), True),
    "incomplete gamma": ([Y + 3], [0], lambda x: tf.math.igamma(x, 2.0), True),
    "cross entropy of an unknown number": (
        [X, ints(4, BATCH)], [0, 0],
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, of_unknown_number(x)), False,
    ),
    "products of an unknown number": (
        [MATRICES], [0], lambda x: tf.matmul(of_unknown_number(x), x), False,
    ),
    "shifted bits": ([IDS], [0], lambda i: tf.bitwise.left_shift(i, 2), True),
}  # fmt: skip


def test_what_a_table_says_of_each_entry_is_cut():
    keys = np.array([b"a", b"c", b"b", b"a", b"?"], object)
    feeds = {"texts:0": keys}
    with tf.Graph().as_default() as graph:
        pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        table = tf.lookup.StaticHashTable(pairs, 0)
        places = table.lookup(tf.strings.lower(v1.placeholder(tf.string, [BATCH], "texts")))
        loss = tf.reduce_sum(tf.tanh(tf.gather(floats(3, 4), places)), name="loss")
        init = v1.tables_initializer().name
    spec = TensorSpec("texts:0", "string", (BATCH,))
    flat = flatten(graph.as_graph_def(), [spec], [loss.name, init])
    decisions, split = split_step(flat, BATCH, 2, {"texts:0": 0})
    assert decisions.state_of_tensor["Tanh:0"] == Sharded(0)
    found = []
    for step in (flat, split):
        with tf.Graph().as_default() as made, v1.Session(graph=made) as session:
            v1.import_graph_def(step.graph_def, name="")
            session.run(step.fetches[1])
            found.append(session.run(step.fetches[0], feeds))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_parts_put_together_are_the_whole(name):
    check_case(*CASES[name])
