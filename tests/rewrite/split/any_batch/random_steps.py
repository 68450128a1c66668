"""Steps of any batch size, drawn at random: rows and sizes that are the batch's, or seem to be.

Between an input and a loss lie ops that are told numbers made of the batch's size: some go with it
in a straight line, some only at the sizes at which a step is looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.flat_graph import FlatGraph
from graphs.source_model import TensorSpec

v1 = tf.compat.v1
BATCH, LENGTH = 6, 5
_TABLE_ROWS = 400


@dataclasses.dataclass(frozen=True)
class RandomStep:
    """A step with an input x of [batch, 2] or [batch, length, 2], and gradients.

    Attributes:
      flat: the step, decided for `BATCH` entries of `LENGTH`.
      open_axes: {fed tensor: its axes of any size}.
      words: what was drawn.
    """

    flat: FlatGraph
    open_axes: Mapping[str, Sequence[int]]
    words: Sequence[str]

    @property
    def batch(self) -> int:
        """How many entries it is decided for."""
        return BATCH

    @property
    def axis_of_feed(self) -> dict[str, int]:
        """{fed tensor: which axis is its batch}."""
        return {"x:0": 0}

    def arrays(self, batch: int, length: int) -> dict[str, np.ndarray]:
        """What a run is fed."""
        shape = (batch, length, 2) if len(self.open_axes["x:0"]) > 1 else (batch, 2)
        return {"x:0": np.random.default_rng(batch).random(shape).astype(np.float32)}


class _Draw:
    """Draws what lies between the input and the loss, and says so."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)
        self.words: list[str] = []

    def one_of(self, table: Mapping[str, Any]) -> Any:
        """An entry of a table."""
        word = [*table][self._rng.integers(len(table))]
        self.words.append(word)
        return table[word]

    def below(self, most: int) -> int:
        """A number from 1 to `most`."""
        return int(self._rng.integers(1, most + 1))

    def number(self, n: Any, most: int = 40) -> Any:
        """A whole number of at least 0 that is made of a size, in one or two steps."""
        for _ in range(self.below(2)):
            n = self.one_of(NUMBERS)(n, self.below(most))
        return n


def _looked_up(n: Any, k: int) -> Any:
    table = np.arange(_TABLE_ROWS, dtype=np.int32)
    table[k:] = k
    return tf.gather(tf.constant(table), tf.clip_by_value(n, 0, _TABLE_ROWS - 1))


NUMBERS = {
    "itself": lambda n, k: n,
    "twice less once": lambda n, k: n * 2 - n,
    "there and back": lambda n, k: n * k // k,
    "at most": lambda n, k: tf.minimum(n, k),
    "at least": lambda n, k: tf.maximum(n, k),
    "at least one": lambda n, k: tf.maximum(n, 1),
    "longest": lambda n, k: tf.reduce_max([n, k]),
    "longest of alike": lambda n, k: tf.reduce_max([n, n]),
    "remainder": lambda n, k: n % k,
    "without remainder": lambda n, k: n - n % k,
    "half": lambda n, k: (n + 1) // 2,
    "missing": lambda n, k: tf.maximum(0, k - n),
    "where few": lambda n, k: tf.where(n < k, n, 1),
    "where none": lambda n, k: tf.where(n < 1, k, n),
    "where as many": lambda n, k: tf.cast(tf.equal(n, k), tf.int32) + n,
    "by a float": lambda n, k: tf.cast(tf.cast(n, tf.float32) * 0.5, tf.int32),
    "of a shape": lambda n, k: tf.concat([[k], tf.stack([n, 2])], 0)[1],
    "turned": lambda n, k: tf.roll(tf.stack([n, k]), 1, 0)[1],
    "written": lambda n, k: tf.tensor_scatter_nd_update([k, k], [[1]], [n])[1],
    "product": lambda n, k: tf.reduce_prod([n, 2]) - n,
    "added up": lambda n, k: tf.cumsum([n, 1])[1] - 1,
    "as many as of numbers": lambda n, k: tf.size(tf.range(n)[:k]),
    "counted": lambda n, k: tf.size(tf.range(n)),
    "looked up": _looked_up,
    "fixed": lambda n, k: tf.constant(k),
}
"""{what: a whole number made of a size and another number}."""


def _of(x: Any) -> Any:
    return tf.shape(x)[0]


ROWS = {
    "dense": lambda x, d: tf.tanh(x @ tf.constant([[1.0, -2.0], [0.5, 1.5]])),
    "centred": lambda x, d: x - tf.reduce_mean(x, 0),
    "scaled by how many": lambda x, d: x / tf.cast(tf.maximum(_of(x), 1), tf.float32),
    "first": lambda x, d: x[: d.number(_of(x))],
    "behind": lambda x, d: x[tf.minimum(d.number(_of(x)) // 2, _of(x)) :],
    "last": lambda x, d: x[-d.below(30) :],
    "sliced": lambda x, d: tf.slice(x, [0, 0], [tf.minimum(d.number(_of(x)), _of(x)), 2]),
    "padded": lambda x, d: tf.pad(x, [[0, d.number(_of(x))], [0, 0]], constant_values=0.5),
    "twice": lambda x, d: tf.concat([x, x * 2.0], 0),
    "first of twice": lambda x, d: tf.concat([x, x * 2.0], 0)[: d.number(_of(x))],
    "behind in twice": lambda x, d: tf.concat([x, x * 2.0], 0)[
        tf.minimum(d.number(_of(x)), _of(x)) :
    ],
    "parts of twice": lambda x, d: tf.split(
        tf.concat([x, x], 0), [tf.minimum(d.number(_of(x)), _of(x)), -1], 0
    )[0],
    "with ones": lambda x, d: tf.concat([x, tf.ones([d.number(_of(x)), 2])], 0),
    "repeated": lambda x, d: tf.tile(x, [tf.minimum(d.number(_of(x)), 3), 1]),
    "gathered": lambda x, d: tf.gather(
        x, tf.minimum(tf.range(_of(x)), tf.maximum(d.number(_of(x)), 1) - 1)
    ),
    "in order": lambda x, d: tf.gather(x, tf.range(_of(x))),
    "turned round": lambda x, d: tf.reverse(x, [0]),
    "added up": lambda x, d: tf.cumsum(x, tf.minimum(d.number(_of(x)) // 40, 1)),
    "apart and together": lambda x, d: tf.reshape(tf.reshape(x, [-1]), [_of(x), 2]),
    "in pairs": lambda x, d: tf.reduce_max(tf.reshape(x[: _of(x) // 2 * 2], [-1, 2, 2]), 1),
    "largest": lambda x, d: tf.gather(
        x, tf.math.top_k(x[:, 0], tf.minimum(d.number(_of(x)), _of(x)))[1]
    ),
    "squeezed": lambda x, d: tf.reshape(tf.squeeze(x[:, None]), [-1, 2]),
    "in a branch": lambda x, d: tf.cond(
        d.number(_of(x)) > 3, lambda: x - tf.reduce_mean(x, 0), lambda: x * 2.0
    ),
    "in a loop": lambda x, d: tf.while_loop(
        lambda i, *_: i < 2,
        lambda i, y: (i + 1, tf.ensure_shape(tf.tanh(y) + y * 0.5, [None, 2])),
        [0, x],
        [tf.TensorShape([]), tf.TensorShape([None, 2])],
    )[1],
    "summed in a loop": lambda x, d: _summed_in_a_loop(x, d.below(30)),
}
"""{what: rows made of rows}."""
_W = np.array([[1.0, -2.0], [0.5, 1.5]], np.float32)
LAYERS = {
    "softmax": lambda x, d: tf.nn.softmax(x),
    "normalised rows": lambda x, d: (
        (x - tf.reduce_mean(x, 1, keepdims=True))
        * tf.math.rsqrt(tf.math.reduce_variance(x, 1, keepdims=True) + 1e-3)
    ),
    "normalised batch": lambda x, d: tf.squeeze(
        v1.nn.fused_batch_norm(x[:, None, None], tf.ones(2), tf.zeros(2))[0], [1, 2]
    ),
    "normalised by hand": lambda x, d: (
        (x - tf.reduce_mean(x, 0)) / tf.sqrt(tf.math.reduce_variance(x, 0) + 0.1)
    ),
    "of length one": lambda x, d: tf.nn.l2_normalize(x, d.below(2) - 1),
    "convolved": lambda x, d: tf.nn.conv1d(x[:, :, None], tf.constant(_W[:, None]), 1, "SAME")[
        :, :, 0
    ],
    "einsum": lambda x, d: tf.einsum("bi,ij->bj", x, tf.constant(_W)),
    "attention": lambda x, d: tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x),
    "below the largest": lambda x, d: x - tf.reduce_max(x, 0),
    "embedded": lambda x, d: tf.gather(tf.constant(_W), tf.cast(x[:, 0] > 0.3, tf.int32)),
    "one hot": lambda x, d: tf.one_hot(tf.argmax(x, 1), 2) + x,
    "by class": lambda x, d: (
        x + tf.math.unsorted_segment_sum(x, tf.cast(x[:, 1] > 0.2, tf.int32), 2)[0]
    ),
    "mean of classes": lambda x, d: (
        x + tf.math.unsorted_segment_mean(x, tf.cast(x[:, 1] > 0.2, tf.int32), 2)[1]
    ),
    "chosen": lambda x, d: tf.where(x > 0.3, x * 2.0, tf.nn.elu(x)),
    "only some": lambda x, d: tf.boolean_mask(x, x[:, 0] > -2.0),
    "clipped": lambda x, d: tf.clip_by_norm(x, 1.5, axes=[1]),
    "clipped together": lambda x, d: tf.clip_by_global_norm([x], 2.0)[0][0],
    "weighed": lambda x, d: x * tf.nn.sigmoid(tf.reduce_sum(x, 1, keepdims=True)),
    "broadcast": lambda x, d: x + tf.broadcast_to(tf.constant([0.1, 0.2]), tf.shape(x)),
    "products": lambda x, d: tf.matmul(x, tf.matmul(x, x, transpose_a=True)),
    "half as exact": lambda x, d: tf.cast(tf.cast(x, tf.float64) * 0.3, tf.float32),
    "scanned": lambda x, d: tf.scan(lambda a, b: a * 0.5 + b, x),
    "mapped": lambda x, d: tf.map_fn(tf.tanh, x),
    "held": lambda x, d: tf.stop_gradient(x) * 0.5 + x,
    "cross entropy": lambda x, d: (
        tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(tf.stop_gradient(x)), x)[:, None]
        * tf.constant([[1.0, -1.0]])
    ),
    "labels": lambda x, d: (
        tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(x[:, 0] > 0.1, tf.int32), x)[:, None]
        + x
    ),
}
"""{what: what layers of networks do to rows}."""


def _summed_in_a_loop(x: Any, rows: int) -> Any:
    def body(number: Any, total: Any) -> Any:
        return number + 1, total * 0.5 + tf.reduce_sum(x[:rows], 0)

    return x + tf.while_loop(lambda number, _: number < 2, body, [0, tf.zeros([2])])[1] * 0.01


def _long(x: Any) -> Any:
    return tf.shape(x)[1]


WINDOWS = {
    "all": lambda x, d: x,
    "first": lambda x, d: x[:, : d.below(8)],
    "every other": lambda x, d: x[:, ::2],
    "all but the first": lambda x, d: x[:, 1:],
    "a half": lambda x, d: x[:, : (_long(x) + 1) // 2],
    "padded": lambda x, d: tf.pad(x, [[0, 0], [0, d.number(_long(x), 8)], [0, 0]]),
    "pooled": lambda x, d: tf.nn.avg_pool1d(x, 2, 2, "SAME"),
    "added up": lambda x, d: tf.cumsum(x, 1),
    "by entries": lambda x, d: x * tf.cast(tf.shape(x)[0], tf.float32) * 0.1,
}
"""{what: windows made of windows}."""
TO_ROWS = {
    "mean": lambda x, d: tf.reduce_mean(x, 1),
    "last": lambda x, d: x[:, -1],
    "one behind another": lambda x, d: tf.reshape(x, [-1, 2]),
    "blocks": lambda x, d: tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 2]),
    "told": lambda x, d: tf.reshape(x, [tf.shape(x)[0] * _long(x), 2]),
}
"""{what: rows made of windows}."""


def random_step(seed: int, kinds: Mapping[str, Any] = ROWS) -> RandomStep:
    """A step; the same of the same seed. Every third has windows of any length."""
    draw, has_windows = _Draw(seed), seed % 3 == 0
    shape = (BATCH, LENGTH, 2) if has_windows else (BATCH, 2)
    axes = [0, 1] if has_windows else [0]
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(0)
        x = v1.placeholder(tf.float32, [None if a in axes else n for a, n in enumerate(shape)], "x")
        w = tf.constant([[1.0, 2.0], [-3.0, 4.0]])
        rows = x
        if has_windows:
            for _ in range(draw.below(2)):
                rows = draw.one_of(WINDOWS)(rows, draw)
            rows = draw.one_of(TO_ROWS)(rows, draw)
        for _ in range(draw.below(3)):
            rows = draw.one_of(kinds)(rows, draw)
        loss = tf.reduce_sum(tf.tanh(rows @ w)) + tf.reduce_mean(tf.tensordot(x, w, 1))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [TensorSpec("x:0", "float32", shape)]
    flat = flatten(graph.as_graph_def(), feeds, fetches, open_conditionals=False)
    return RandomStep(flat, {"x:0": axes}, draw.words)
