"""Steps of any batch size whose inputs have other axes of any size, and rows of some sizes only."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.building.shapes import infer_known
from graphs.source_model import TensorSpec
from rewrite.split.any_batch import decide_open as module
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.any_batch.open_step import OpenStep
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.decision import Split
from rewrite.split.prove.structure.check_resharding import prove_sizes
from rewrite.split.reading.batch_axes import candidates
from rewrite.split.states import Sharded
from tests.rewrite.split.run_step import run, run_each, split_open_step

v1 = tf.compat.v1
BATCH, OTHER_BATCH = 6, 7
STEPS = {
    "all pairs": ([1, 1], lambda x, a: a @ x / tf.reduce_sum(a, 1, keepdims=True)),
    "two of each": ([2], lambda x, a: tf.reshape(a, [-1, 2]) * x),
    "twice": ([2], lambda x, a: a[:, None] * tf.concat([x, x], 0)),
    "pairs of two views": ([2], lambda x, a: a * tf.matmul(twice(x), twice(x), transpose_b=True)),
}
"""{what: (the second input's axes as multiples of the batch, a loss's terms)}."""


def arrays_of(multiples, batch):
    rng = np.random.default_rng(batch)
    shapes = {"x:0": (batch, 2), "a:0": tuple(times * batch for times in multiples)}
    return {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("what", STEPS)
def test_another_open_axis_that_follows_the_batch(what):
    multiples, terms = STEPS[what]
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 2), "x")
        a = v1.placeholder(tf.float32, [None] * len(multiples), "a")
        w = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        loss = tf.reduce_mean(tf.tanh(terms(x @ w, a)))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [
        TensorSpec(name, "float32", array.shape)
        for name, array in arrays_of(multiples, BATCH).items()
    ]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    open_axes = {"x:0": [0], "a:0": [*range(len(multiples))]}
    batch, axes = candidates(feeds, open_axes, {})[0]
    decisions = decide_open(flat, infer_known(flat), batch, axes, open_axes)
    assert decisions is not None
    split = build_step(flat, decisions, 2)
    given = arrays_of(multiples, OTHER_BATCH)
    whole, _ = run(flat.graph_def, flat.fetches, given)
    parts, _ = run(split.graph_def, split.fetches, given)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def looped(x, terms):
    """What a loop adds up of rows that go through it; small, for a tanh to tell it apart."""
    start = [0, tf.zeros([2]), x / 1000]
    return tf.while_loop(
        lambda i, *_: i < 2, lambda i, total, y: (i + 1, total + terms(y), y * 0.5), start
    )[1][None]


def sum_of(rows):
    return lambda y: tf.reduce_sum(tf.slice(y, [0, 0], [rows, 2]), 0)


def counted(x, entries):
    """Rows of the batch's entries added up where they belong."""
    places = tf.cast(x[:, :1] > 0.5, tf.int32)
    rows = tf.reshape(places + entries[:, None] * 2, [-1])
    own = tf.gather(x, places, batch_dims=1)
    return tf.reshape(tf.math.unsorted_segment_sum(own, rows, tf.size(x)), [-1, 2])


def twice(x):
    return tf.concat([x, x * 2.0], 0)


TABLE = np.array([*[0] * 25, 1, *[0] * 400], np.int32)
"""What is 0 at all sizes but at 25."""


def where_no_line_is_zero(n):
    """0 at 2, 6, 9 and 197, where the step is looked at, and 1 at other sizes."""
    return tf.cast((n - 2) * (n - 6) * (n - 9) * (n - 197) != 0, tf.int32)


SCORED = np.random.default_rng(0).random((2, 300)).astype(np.float32)
BOUNDED = {
    "the first rows of a larger batch": lambda x, n: x[:9],
    "the first rows of a much larger batch": lambda x, n: x[:20],
    "at most so many": lambda x, n: x[: tf.minimum(n, 20)],
    "no odd rows": lambda x, n: x[: n - n % 3],
    "padded": lambda x, n: tf.pad(x, [[0, -n % 3], [0, 0]], constant_values=0.5),
    "as many rows as the batch it is placed for": lambda x, n: x[:BATCH],
    "padded to the least": lambda x, n: tf.pad(x, [[0, tf.maximum(0, 4 - n)], [0, 0]], "SYMMETRIC"),
    "padded to the most": lambda x, n: tf.pad(x, [[0, tf.reduce_max([0, 4 - n])], [0, 0]]) + 0.5,
    "padded by a half": lambda x, n: tf.pad(
        x, [[0, tf.cast(tf.nn.relu(4 - n) / 2, tf.int32)], [0, 0]], constant_values=0.5
    ),
    "repeated if there are few": lambda x, n: tf.tile(x, [tf.where(n < 4, 2, 1), 1]),
    "without the first of few": lambda x, n: x[tf.maximum(0, 4 - n) :],
    "never so many": lambda x, n: x[: tf.minimum(n, 300)],
    "as many as of never so many": lambda x, n: x[: tf.shape(x[: tf.minimum(n, 300)])[0]],
    "never so many in a loop": lambda x, n: looped(x, lambda y: tf.reduce_sum(y[:300], 0)),
    "at most so many in a loop": lambda x, n: looped(x, lambda y: tf.reduce_sum(y[:20], 0)),
    "behind the first of few": lambda x, n: twice(x)[tf.maximum(n, 4) :],
    "a part of two batches": lambda x, n: tf.split(twice(x), [tf.maximum(n, 4), -1], 0)[0],
    "as many zeros, or four": lambda x, n: tf.pad(x, [[tf.maximum(n, 4), 0], [0, 0]]) + 0.5,
    "as many ones, or four": lambda x, n: tf.concat([x, tf.ones([tf.maximum(n, 4), 2])], 0),
    "as many ones as placed for": lambda x, n: tf.concat([x, tf.ones([BATCH, 2])], 0),
    "thrice if there are few": lambda x, n: tf.tile(x, [tf.where(n < 4, 3, 2), 1]),
    "told to a loop": lambda x, n: looped(x, sum_of(tf.minimum(n, 20))),
    "the first of many in a branch": lambda x, n: tf.cond(
        n > 1, lambda: (x - tf.reduce_mean(x, 0))[:20], lambda: x[:20]
    ),
    "the first of many in a loop": lambda x, n: tf.while_loop(
        lambda i, _: i < 2,
        lambda i, y: (i + 1, (y - tf.reduce_mean(y, 0))[:20]),
        [0, x],
        [tf.TensorShape([]), tf.TensorShape([None, 2])],
    )[1],
    "the last of many again": lambda x, n: tf.gather(x, tf.minimum(tf.range(n), 8)),
    "looked up": lambda x, n: tf.gather(x, tf.constant([*range(9), *[0] * 320])[:n]),
    "counted together": lambda x, n: counted(x, tf.minimum(tf.range(n), 8)),
    "counted together, looked up": lambda x, n: counted(
        x, tf.constant([*range(9), *[0] * 320])[:n]
    ),
    "begun where a table says": lambda x, n: x[tf.gather(TABLE, n) :],
    "begun where an entry says": lambda x, n: x[tf.constant(TABLE)[n] :],
    "begun where a sum says": lambda x, n: x[tf.reduce_sum(tf.one_hot(n, 426, 1, 0) * TABLE) :],
    "begun where a segment says": lambda x, n: x[tf.math.unsorted_segment_sum([1], [n], 330)[25] :],
    "begun where a product says": lambda x, n: x[where_no_line_is_zero(n) :],
    "padded by what a table says": lambda x, n: tf.pad(
        x, [[0, tf.gather(TABLE, n)], [0, 0]], constant_values=0.5
    ),
    "added up along an axis of a table": lambda x, n: tf.cumsum(x, 1 - tf.gather(TABLE, n)),
    "turned along an axis of a table": lambda x, n: tf.cumsum(
        tf.reverse(x, [tf.gather(TABLE, n)])[:, :1] * x, 0
    ),
    "as many as of the first numbers": lambda x, n: x[: tf.size(tf.range(n)[:300])],
    "behind as many as are above": lambda x, n: x[tf.size(tf.range(n)[300:]) :],
    "at most so many, by a padded size": lambda x, n: x[: tf.pad([tf.minimum(n, 20)], [[1, 0]])[1]],
    "at most so many, by a written size": lambda x, n: x[
        : tf.tensor_scatter_nd_update([1, 2], [[1]], [tf.minimum(n, 20)])[1]
    ],
    "padded where a written size says": lambda x, n: tf.pad(
        x, tf.scatter_nd([[0, 1]], [-n % 3], [2, 2]), constant_values=0.5
    ),
    "begun where a sum of numbers says": lambda x, n: x[
        tf.cast(tf.reduce_sum(tf.range(n)) - 7 * n <= -28, tf.int32) :
    ],
    "begun where a product of twos says": lambda x, n: x[
        tf.cast(tf.reduce_prod(tf.fill([n], 2)) == 8, tf.int32) :
    ],
    "the first rows of a very large batch": lambda x, n: x[:300],
    "the last rows of a very large batch": lambda x, n: x[-300:],
    "as many as the shorter of both": lambda x, n: tf.transpose(
        tf.linalg.diag_part(tf.stack([x @ SCORED, x @ SCORED * 2.0]))
    ),
}
"""{what: rows that are the batch's at some sizes only}: at 6 and 9, and not at 3, 7, 25 or 320."""


@pytest.mark.parametrize("what", BOUNDED)
def test_rows_that_are_the_batch_at_some_sizes_only(what):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 2), "x")
        w = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        rows = BOUNDED[what](x, tf.shape(x)[0])
        loss = tf.reduce_sum(tf.tanh(rows @ w)) + tf.reduce_mean(tf.square(x @ w))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [TensorSpec("x:0", "float32", (BATCH, 2))]
    flat = flatten(graph.as_graph_def(), feeds, fetches, open_conditionals=False)
    _, split = split_open_step(flat, BATCH, 2, {"x:0": 0})
    require_same(flat, split, ({"x": (size, 2)} for size in (3, BATCH, 7, 25, 320)))


def require_same(flat, split, all_shapes, rtol=1e-5, atol=0.0):
    """Parts give what the whole step gives, for each {fed op: shape}."""
    given = []
    for shapes in all_shapes:
        rng = np.random.default_rng(next(iter(shapes.values()))[0])
        given.append({f"{n}:0": rng.random(s).astype(np.float32) for n, s in shapes.items()})
    whole, parts = (run_each(step.graph_def, step.fetches, given) for step in (flat, split))
    for wanted, found in zip(itertools.chain(*whole), itertools.chain(*parts), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def entries_of(rows):
    """A loss's terms of steps that all lie in one dimension, with how many these are."""
    flat = tf.reshape(rows, [-1, 2])
    return tf.tanh(flat) / tf.cast(tf.size(tf.reshape(flat * 2.0, [-1])), tf.float32)


def added_up(x, terms):
    """What two rounds of a loop make of each entry."""
    rounds = tf.while_loop(
        lambda i, _: i < 2,
        lambda i, y: (i + 1, y + tf.reduce_sum(tf.reshape(terms(y), [tf.shape(y)[0], -1]), 1)),
        [0, tf.zeros([tf.shape(x)[0]])],
    )
    return rounds[1]


def blocks_of(x):
    """The first steps of all entries one behind another, each as many as the batch has entries."""
    flat = tf.reshape(tf.transpose(x[:, :4], [1, 0, 2]), [-1, 2])
    return tf.tanh(tf.cumsum(tf.tanh(flat), 0)) * tf.cast(tf.shape(flat)[0], tf.float32)


LENGTHS = {
    "the first of many": lambda x, p: entries_of(x[:, :4]),
    "every fourth": lambda x, p: entries_of(x[:, 3::4]),
    "pairs": lambda x, p: entries_of(tf.nn.avg_pool1d(x, 2, 2, "VALID")),
    "at least so many": lambda x, p: entries_of(
        tf.pad(x, [[0, 0], [0, tf.maximum(0, 11 - tf.shape(x)[1])], [0, 0]])
    ),
    "behind a beginning": lambda x, p: entries_of(x[:, tf.shape(p)[1] :]),
    "in a loop": lambda x, p: added_up(x, lambda y: entries_of(x[:, :4] + y[:, None, None])),
    "blocks": lambda x, p: blocks_of(x),
    "the first rows of all steps": lambda x, p: entries_of(tf.reshape(x, [-1, 2])[:90]),
    "without the first of few elements": lambda x, p: entries_of(
        x[tf.cast(tf.size(x) // 2 <= 7, tf.int32) :]
    ),
    "as many rows as p has": lambda x, p: entries_of(tf.reshape(x, [-1, 2])[: tf.size(p)]),
    "halves": lambda x, p: entries_of(x[:, : tf.shape(x)[1] // 2]),
}
"""{what: terms of a loss whose shape is the batch's times a number, at some lengths only}."""


@pytest.mark.parametrize("what", LENGTHS)
def test_lengths_beside_the_batch(what):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, None, 2), "x")
        p = v1.placeholder(tf.float32, (None, None), "p")
        w = tf.constant([1.0, 2.0])
        terms = LENGTHS[what](x * w, p)
        loss = tf.reduce_sum(terms) + tf.reduce_mean(p)
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [TensorSpec("x:0", "float32", (8, 10, 2)), TensorSpec("p:0", "float32", (8, 4))]
    flat = flatten(graph.as_graph_def(), feeds, fetches, open_conditionals=False)
    open_axes = {"x:0": [0, 1], "p:0": [0, 1]}
    decisions = decide_open(flat, infer_known(flat), 8, {"x:0": 0, "p:0": 0}, open_axes)
    assert decisions is not None and decisions.open_axes == open_axes
    split = build_step(flat, decisions, 2)
    sizes = ((8, 10, 4), (8, 20, 2), (5, 12, 9), (8, 3, 1), (3, 4, 2), (3, 2, 1))
    shapes = ({"x": (batch, length, 2), "p": (batch, before)} for batch, length, before in sizes)
    require_same(flat, split, shapes)


def added_up_and_back(x):
    """A whole op's rows, one behind another, are cut again; its number of rows counts, too."""
    rows = tf.tanh(tf.cumsum(tf.reshape(x, [-1, 2]), 0))
    back = tf.reshape(rows, tf.shape(x)) * tf.cast(tf.size(rows), tf.float32)
    return back + tf.reduce_sum(tf.reshape(rows, [-1]))


BESIDE = {
    "dense": lambda x: tf.tanh(tf.tensordot(x, MIXED, 1)),
    "two dense": lambda x: tf.tensordot(tf.tanh(tf.tensordot(x, MIXED, 1)), MIXED, 1),
    "elements": lambda x: tf.tanh(tf.reshape(tf.reshape(x, [-1]) * 2.0, tf.shape(x))),
    "told sizes": lambda x: tf.tanh(
        tf.reshape(x, [tf.shape(x)[0] * tf.shape(x)[1], 2])
        + tf.ones([tf.shape(x)[0] * tf.shape(x)[1], 1])
    ),
    "a mean": entries_of,
    "cut again": added_up_and_back,
    "halves": lambda x: entries_of(x[:, : tf.shape(x)[1] // 2]),
    "the first of many": lambda x: entries_of(x[:, :4]),
    "chunks": lambda x: tf.tanh(
        tf.reshape(
            tf.pad(x, [[0, 0], [0, -tf.shape(x)[1] % 4], [0, 0]]),
            [tf.shape(x)[0] * ((tf.shape(x)[1] + 3) // 4), 4, 2],
        )
    ),
    "pairs": lambda x: tf.tanh(tf.reshape(x, [-1, 1]) + tf.reshape(x[:, :, ::-1], [-1, 1])),
}
"""{what: a loss's terms that have the steps of all entries one behind another}."""
MIXED = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)


@pytest.mark.parametrize("what", BESIDE)
def test_steps_of_any_number_beside_the_batch(what):
    """What has them in one dimension with the batch is split, by as many as there are in a run."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, None, 2), "x")
        w = tf.constant([1.0, 2.0])
        loss = tf.reduce_sum(BESIDE[what](x * w))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [TensorSpec("x:0", "float32", (8, 10, 2))]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    decisions = decide_open(flat, infer_known(flat), 8, {"x:0": 0}, {"x:0": [0, 1]})
    assert decisions is not None
    whole = [n.name for n in flat.graph_def.node
             if (reason := getattr(decisions.answer_of_op[n.name], "reason", ""))
             and "across the batch" not in reason]  # fmt: skip
    assert not whole
    assert any(getattr(state, "is_any", False) for state in decisions.state_of_tensor.values())
    for num_shards in (2, 3):
        split = build_step(flat, decisions, num_shards)
        proof = prove_sizes(flat, decisions, split, num_shards, 60.0)
        assert len(proof.batches) == 2
        shapes = ((8, 10, 2), (8, 20, 2), (5, 7, 2), (3, 1, 2), (4, 0, 2))
        require_same(flat, split, ({"x": shape} for shape in shapes), rtol=1e-4)


def test_scores_of_each_with_others_of_another_number():
    """The labels' diagonal is as long as the shorter of both; the matrix is not."""
    with tf.Graph().as_default() as graph:
        x, others = (v1.placeholder(tf.float32, (None, 2), name) for name in ("x", "others"))
        w = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        scores = tf.matmul(x @ w, others, transpose_b=True)
        labels = tf.eye(tf.shape(scores)[0], tf.shape(scores)[1])
        losses = tf.nn.softmax_cross_entropy_with_logits(labels, scores)
        loss = tf.reduce_sum(losses)
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [TensorSpec("x:0", "float32", (6, 2)), TensorSpec("others:0", "float32", (6, 2))]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    open_axes = {feed.tensor: [0] for feed in feeds}
    decisions = decide_open(flat, infer_known(flat), 6, {"x:0": 0}, open_axes)
    assert decisions is not None
    whole = [n.op for n in flat.graph_def.node
             if getattr(decisions.answer_of_op[n.name], "reason", "")]  # fmt: skip
    assert not whole
    split = build_step(flat, decisions, 2)
    sizes = ((6, 6), (9, 4), (3, 7))
    require_same(flat, split, ({"x": (a, 2), "others": (b, 2)} for a, b in sizes), rtol=1e-4)


def in_a_scan(x, wanted):
    """A mean of squared differences from what a loop over time makes, which is as long as x."""
    steps = tf.scan(lambda h, t: tf.tanh(h + t), tf.transpose(x, [1, 0, 2]), tf.zeros_like(x[:, 0]))
    return tf.reduce_mean(tf.square(tf.transpose(steps, [1, 0, 2]) - wanted))


def scanned(wanted_of, sizes):
    """A step with two open lengths that only a loop ties, and another one; what is open, its axes.

    Args:
      wanted_of: the wanted steps, of x and what is fed as y.
      sizes: how long x, y and p are, in the step as it was loaded.
    """
    with tf.Graph().as_default() as graph:
        x, y = (v1.placeholder(tf.float32, (None, None, 2), name) for name in "xy")
        p = v1.placeholder(tf.float32, (None, None), "p")
        w = tf.constant([1.0, 2.0])
        loss = in_a_scan(x * w, wanted_of(y)) + tf.reduce_mean(tf.reduce_sum(p, 1))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    shapes = [(8, sizes[0], 2), (8, sizes[1], 2), (8, sizes[2])]
    feeds = [TensorSpec(f"{n}:0", "float32", shape) for n, shape in zip("xyp", shapes, strict=True)]
    flat = flatten(graph.as_graph_def(), feeds, fetches, open_conditionals=False)
    return flat, {feed.tensor: [0, 1] for feed in feeds}


def require_same_in_parts(flat, decisions, sizes):
    """Two parts give what the whole step gives, for (batch, lengths of x, y and p) each."""
    split = build_step(flat, decisions, 2)
    shapes = ({"x": (b, x, 2), "y": (b, y, 2), "p": (b, p)} for b, x, y, p in sizes)
    require_same(flat, split, shapes)


def decided_in_parts(flat, open_axes):
    axis_of_feed = dict.fromkeys(open_axes, 0)
    return decide_open(flat, infer_known(flat), 8, axis_of_feed, open_axes)


def test_lengths_that_only_a_loop_ties():
    """Sizes that contradict each other behind a loop aren't tried, and end nothing."""
    flat, open_axes = scanned(lambda y: y, (10, 10, 10))
    decisions = decided_in_parts(flat, open_axes)
    assert decisions is not None and decisions.open_axes == open_axes
    assert not decisions.refused
    cut = {name for name, answer in decisions.answer_of_op.items() if isinstance(answer, Split)}
    assert any(flat.nodes[name].op == "StatelessWhile" for name in cut)
    require_same_in_parts(flat, decisions, ((8, 10, 10, 4), (5, 3, 3, 12), (3, 40, 40, 1)))


def test_lengths_of_which_one_is_twice_the_other_behind_a_loop():
    """No other lengths were found to run: any batch, of these."""
    flat, open_axes = scanned(lambda y: y[:, ::2], (7, 14, 5))
    decisions = decided_in_parts(flat, open_axes)
    assert decisions is not None and decisions.takes_any_batch
    require_same_in_parts(flat, decisions, ((8, 7, 14, 5), (5, 7, 14, 5)))


def test_only_what_has_to_be_alike_is_moved_together():
    flat, open_axes = scanned(lambda y: y, (10, 10, 10))

    def runs(step):
        lengths = {spec.tensor: spec.shape[1] for spec in step.flat.feeds}
        return lengths["x:0"] == lengths["y:0"]

    lengths = {feed: [1] for feed in open_axes}
    step = OpenStep(flat, infer_known(flat), 8, dict.fromkeys(open_axes, 0), lengths)
    others = step.other_lengths(runs)
    assert len(others) == 2
    for other in others:
        x, y, p = (spec.shape[1] for spec in other.flat.feeds)
        assert x == y != 10
        assert p != 10


@pytest.mark.parametrize("axis", [0, 1])
def test_matrices_of_diagonals_as_long_as_what_comes(axis):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, None, 2), "x")
        long = tf.transpose(tf.tanh(x), [1, 2, 0] if axis == 0 else [0, 2, 1])
        matrices = tf.linalg.diag(long, num_rows=tf.shape(x)[axis])
        fetches = [tf.reduce_mean(tf.reduce_sum(matrices, 2) * 2.0, name="loss").name]
    feeds = [TensorSpec("x:0", "float32", (BATCH, 4, 2))]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    decisions = decide_open(flat, infer_known(flat), BATCH, {"x:0": 0}, {"x:0": [0, 1]})
    assert decisions is not None
    split = build_step(flat, decisions, 2)
    shapes = ((BATCH, 4, 2), (OTHER_BATCH, 3, 2))
    require_same(flat, split, ({"x": shape} for shape in shapes))


def placed(x, places_of):
    """Each entry and its places in a table of four, of a mask with as many ones."""
    table = tf.constant([1.0, -2.0, 3.0, -4.0])
    return x + tf.gather(table, places_of(tf.ones([tf.shape(x)[0], 2], tf.int32)))


REGULAR = {
    "a part that is all": lambda x, n: x[: n * 2 // 2],
    "once": lambda x, n: tf.tile(x, [n // tf.maximum(n, 1), 1]),
    "apart and together": lambda x, n: tf.reshape(tf.reshape(x, [n * 2, 1]), [n * 2 // 2, 2]),
    "the second batch": lambda x, n: twice(x)[n:],
    "the first batch": lambda x, n: tf.split(twice(x), [n, n], 0)[0],
    "ones behind": lambda x, n: tf.concat([x, tf.ones([n, 2])], 0)[:n],
    "nothing too few": lambda x, n: tf.pad(x, [[0, tf.maximum(0, 1 - n)], [0, 0]]),
    "each by its number": lambda x, n: tf.gather(x, tf.range(n)),
    "as many as the longest": lambda x, n: tf.gather(x, tf.range(tf.reduce_max([n, n]))),
    "counted together": lambda x, n: counted(x, tf.range(n)),
    "centred in a branch": lambda x, n: tf.cond(
        n > 1, lambda: x - tf.reduce_mean(x, 0), lambda: x * 2.0
    ),
    "of a padded shape": lambda x, n: tf.reshape(
        x, tf.pad(tf.shape(x), [[0, 1]], constant_values=1)
    )[..., 0],
    "of a turned and padded shape": lambda x, n: tf.reshape(
        x, tf.roll(tf.pad(tf.shape(x), [[1, 0]], constant_values=1), -1, 0)
    )[..., 0],
    "of a written shape": lambda x, n: tf.reshape(
        x, tf.tensor_scatter_nd_update([1, 2, 1], [[0]], [n])
    )[..., 0],
    "of a product's shape": lambda x, n: tf.reshape(
        tf.reshape(x, tf.math.cumprod(tf.shape(x))[1:]), tf.scatter_nd([[0], [1]], [n, 2], [2])
    ),
    "at places that a mask of ones counts": lambda x, n: placed(
        x, lambda ones: tf.cumsum(ones, 1) * ones - 1
    ),
    "at places that a mask of ones chooses": lambda x, n: placed(
        x, lambda ones: tf.where(ones > 0, tf.abs(ones // 2), 1 - ones)
    ),
    "vectorized": lambda x, n: tf.vectorized_map(lambda row: row * tf.reduce_sum(row), x),
}
"""{what: rows that are the batch's at every size}."""


@pytest.mark.parametrize("what", REGULAR)
def test_rows_that_are_the_batch_at_every_size_are_still_split(what):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 2), "x")
        rows = REGULAR[what](x, tf.shape(x)[0])
        fetches = [tf.reduce_sum(tf.tanh(rows), name="loss").name]
    feeds = [TensorSpec("x:0", "float32", (BATCH, 2))]
    flat = flatten(graph.as_graph_def(), feeds, fetches, open_conditionals=False)
    decisions, split = split_open_step(flat, BATCH, 2, {"x:0": 0})
    assert decisions.state_of_tensor["Tanh:0"] == Sharded(0)
    require_same(flat, split, ({"x": (size, 2)} for size in (2, BATCH, 11)))


def hardest(x):
    """Half of the entries, those of the largest sums."""
    return tf.math.top_k(tf.reduce_sum(x, 1), tf.shape(x)[0] // 2)[0]


def put_together(x):
    count = tf.shape(x)[0] // 3 * 3
    return tf.concat([x[:count] * 2.0, x[count:]], 0)


LATE = {
    "the hardest half": hardest,
    "no odd rows": lambda x: x[: tf.shape(x)[0] // 2 * 2],
    "padded": lambda x: tf.pad(x, [[0, -tf.shape(x)[0] % 3], [0, 0]], constant_values=0.5),
    "in threes": lambda x: tf.reduce_max(tf.reshape(x[: tf.shape(x)[0] // 3 * 3], [-1, 3, 2]), 1),
    "put together": put_together,
}
"""{what: what a loss reads of the last layer; or the first layer does, of what comes}."""


def trained(layers, terms, is_early=False):
    """Layers whose loss, or whose first input, is of rows that are the batch's at some sizes."""
    with tf.Graph().as_default() as graph:
        x = y = v1.placeholder(tf.float32, (None, 2), "x")
        weights = [tf.constant([[1.0, 2.0], [-3.0, 4.0 + i]]) for i in range(layers)]
        y = terms(y) if is_early else y
        for w in weights:
            y = tf.tanh(y @ w - tf.reduce_mean(y, 0)) + x * 0.1
        loss = tf.reduce_mean(tf.square(y if is_early else terms(y)))
        fetches = [loss.name, *(each.name for each in tf.gradients(loss, weights))]
    return flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (BATCH, 2))], fetches)


@pytest.mark.parametrize("what", LATE)
def test_a_gradient_of_rows_of_some_sizes_takes_as_many_passes_however_deep(what, monkeypatch):
    terms, early = LATE[what], LATE[what] is put_together
    passes = []
    monkeypatch.setattr(
        module, "decide", lambda *given, **named: (passes.append(1), decide(*given, **named))[1]
    )
    counts = []
    for layers in (2, 6):
        passes.clear()
        flat = trained(layers, terms, early)
        decisions, split = split_open_step(flat, BATCH, 2, {"x:0": 0})
        counts.append(len(passes))
    assert counts[0] == counts[1]
    gradients = [n.name for n in flat.graph_def.node if n.op == "TanhGrad"]
    assert len(gradients) == 6
    assert early or all(decisions.state_of_tensor[f"{g}:0"] == Sharded(0) for g in gradients)
    shapes = ({"x": (size, 2)} for size in (2, 3, BATCH, 25))
    require_same(flat, split, shapes, rtol=1e-4, atol=1e-6)


def test_a_length_that_can_only_be_less():
    """A table of positions has rows for the longest sequence, at which the step was looked at."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, None, 2), "x")
        table = tf.constant(np.random.default_rng(0).random((10, 2)).astype(np.float32))
        w = tf.constant([1.0, 2.0])
        loss = tf.reduce_mean(tf.tanh((x + table[: tf.shape(x)[1]]) * w))
        fetches = [loss.name, tf.gradients(loss, w)[0].name]
    feeds = [TensorSpec("x:0", "float32", (8, 10, 2))]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    decisions = decided_in_parts(flat, {"x:0": [0, 1]})
    assert decisions is not None and decisions.open_axes == {"x:0": [0, 1]}
    split = build_step(flat, decisions, 2)
    shapes = ((8, 10, 2), (5, 3, 2), (2, 1, 2))
    require_same(flat, split, ({"x": shape} for shape in shapes))
