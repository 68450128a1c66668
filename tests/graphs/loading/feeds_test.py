"""Inputs that are made up, and inputs that are read."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.function import Defun

from graphs.errors import FeedError
from graphs.loading.feeds import generate_feeds, given_shapes, read_feeds
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _limit(build, dtype=tf.int64, size=4000):
    """The limit that the values of a placeholder have that `build` uses."""
    graph = tf.Graph()
    with graph.as_default():
        ids = v1.placeholder(dtype, [size], name="ids")
        out = tf.identity(build(ids), name="out")
    specs = [TensorSpec("ids:0", dtype.name, (size,))]
    (values,) = generate_feeds(graph.as_graph_def(), specs, [out.name], seed=0).values()
    assert values.min() == 0
    return values.max() + 1


def _table(rows, resource=True):
    return v1.get_variable("table", [rows, 2], use_resource=resource)


def _partitioned(strategy, ids):
    """A table of 10 rows in parts of 4, 3 and 3."""
    parts = [tf.zeros([rows, 2]) for rows in (4, 3, 3)]
    return v1.nn.embedding_lookup(parts, ids, partition_strategy=strategy)


def _ctc_loss(ids, num_classes):
    """A loss of texts whose letters are of so many classes, of which the last is none."""
    return tf.raw_ops.CTCLoss(
        inputs=tf.zeros([9, 2, num_classes]), labels_indices=tf.zeros([4000, 2], tf.int64),
        labels_values=tf.cast(ids, tf.int32), sequence_length=[9, 9],
    )[0]  # fmt: skip


def _called(ids):
    function = tf.function(lambda table, ids: tf.gather(table, ids))
    return function(tf.zeros([7, 2]), ids)


@Defun(tf.float32, noinline=True)
def doubled(x):
    return 2.0 * x


@pytest.mark.parametrize(
    ("build", "limit"),
    [
        (lambda ids: tf.gather(_table(7), ids), 7),
        (lambda ids: tf.gather(_table(7, resource=False), ids), 7),
        (lambda ids: tf.gather(tf.zeros([3, 9]), ids, axis=1), 9),
        (lambda ids: tf.gather(_table(7), tf.reshape(tf.cast(ids, tf.int32), [-1, 2])), 7),
        (lambda ids: tf.gather(_table(7), tf.unstack(tf.transpose(ids[:, None]))[0]), 7),
        (lambda ids: tf.gather(_table(7), tf.concat([ids[:9], ids[9:]], 0)), 7),
        (lambda ids: tf.gather(_table(7), tf.unique(ids)[0]), 7),
        (lambda ids: tf.gather(_table(7), tf.unique(ids)[1]), 100),
        (lambda ids: tf.gather(_table(7), tf.nn.relu(ids)), 7),
        (lambda ids: tf.gather(_table(7), tf.minimum(ids, 50)), 7),
        (lambda ids: tf.gather(_table(7), ids * tf.cast(ids != 9, tf.int64)), 7),
        (lambda mask: tf.gather(_table(8), tf.cumsum(tf.reshape(mask, [-1, 4]), 1) - 1), 3),
        (_called, 7),
        (lambda ids: tf.one_hot(ids, 11), 11),
        (
            lambda ids: tf.nn.sparse_softmax_cross_entropy_with_logits(
                ids, tf.matmul(tf.zeros([4000, 3]), tf.zeros([3, 5]))
            ),
            5,
        ),
        (lambda ids: tf.math.unsorted_segment_sum(tf.zeros([4000]), ids, 6), 6),
        (lambda ids: tf.gather_nd(tf.zeros([9, 5, 3]), tf.stack([ids, ids], 1)), 5),
        (lambda ids: _ctc_loss(ids, num_classes=6), 5),
        (lambda ids: tf.add(tf.reduce_sum(tf.one_hot(ids, 11)), tf.gather(_table(7), ids)), 7),
        (lambda ids: _partitioned("div", ids), 10),
        (lambda ids: _partitioned("mod", ids), 9),
        (lambda ids: ids + 1, 100),
    ],
)
def test_integers_stay_below_what_they_index(build, limit):
    assert _limit(build) == limit


LENGTH, PER_TEXT = 12, 4


def _made(build, *specs):
    """The arrays of placeholders that `build` uses, after a run with them."""
    with tf.Graph().as_default() as graph:
        given = [
            v1.placeholder(dtype, shape, name=f"given_{i}")
            for i, (dtype, shape) in enumerate(specs)
        ]
        out = tf.identity(build(*given), name="out")
        feeds = [TensorSpec(t.name, t.dtype.name, tuple(t.shape)) for t in given]
        made = generate_feeds(graph.as_graph_def(), feeds, [out.name], seed=0)
        with v1.Session() as session:
            session.run(out, made)
    return list(made.values())


def _ctc_of_lengths(lengths, labels):
    frames = tf.zeros([5, LENGTH, 9])
    letters = tf.sparse.from_dense(labels)
    return tf.nn.ctc_loss(letters, frames, None, lengths, logits_time_major=False, blank_index=-1)


LENGTHS, FRAMES = (tf.int32, [5]), np.zeros([5, LENGTH, 9], np.float32)


@pytest.mark.parametrize(
    ("build", "more"),
    [
        (_ctc_of_lengths, [(tf.int32, [5, PER_TEXT])]),
        (lambda lengths: tf.reverse_sequence(FRAMES, lengths, 1, 0), []),
        (lambda lengths: tf.nn.ctc_greedy_decoder(tf.zeros([LENGTH, 5, 9]), lengths)[1], []),
        (lambda lengths: tf.sequence_mask(lengths, LENGTH), []),
        (lambda lengths: tf.sequence_mask(lengths[:, None], tf.shape(FRAMES)[1]), []),
    ],
)
def test_lengths_are_at_most_what_they_measure(build, more):
    lengths = _made(build, LENGTHS, *more)[0]
    assert LENGTH * 3 // 4 <= lengths.min() < lengths.max() <= LENGTH


def _sparse_mean(indices, ids):
    return tf.sparse.segment_mean(tf.zeros([7, 2]), indices, ids)


@pytest.mark.parametrize(
    ("build", "more", "rows"),
    [
        (lambda ids: tf.math.segment_mean(tf.zeros([20, 2]), ids) - tf.zeros([3, 2]), [], 3),
        (lambda ids: tf.math.segment_max(tf.zeros([20, 2]), tf.cast(ids, tf.int64)), [], 10),
        (lambda ids, indices: _sparse_mean(indices, ids), [(tf.int32, [20])], 10),
        (lambda ids, x: tf.cond(x[0] > 0, lambda: tf.math.segment_sum(x, ids), lambda: x),
         [(tf.float32, [20])], 10),
    ],
)  # fmt: skip
def test_ids_of_segments_are_sorted_and_leave_none_out(build, more, rows):
    ids = _made(build, (tf.int32, [20]), *more)[0]
    assert sorted(set(ids)) == list(range(rows)) and (np.diff(ids) >= 0).all()


@pytest.mark.parametrize(
    ("build", "specs", "is_right"),
    [
        (tf.linalg.cholesky, [(tf.float32, [2, 3, 3])], lambda m: np.linalg.eigvalsh(m) > 0),
        (lambda x: tf.math.log(x), [(tf.float32, [9])], lambda x: x > 0),
        (lambda y: tf.nn.softmax_cross_entropy_with_logits(y, tf.zeros([4, 3])),
         [(tf.float32, [4, 3])], lambda y: np.isclose(y.sum(1), 1) & (y > 0).all(1)),
        (lambda n: tf.zeros([n, 2]), [(tf.int32, [])], lambda n: n == 4),
        (lambda s: tf.reshape(FRAMES, s), [(tf.int32, [2])], lambda s: s == [-1, 1]),
        (lambda n: tf.math.top_k(tf.zeros([2, 3]), n)[0], [(tf.int32, [])], lambda n: n == 3),
        (lambda p: tf.transpose(FRAMES, p), [(tf.int32, [3])], lambda p: p == [0, 1, 2]),
        (lambda i: tf.constant(FRAMES)[i], [(tf.int32, [])], lambda i: i < 5),
        (lambda i: tf.constant(FRAMES)[:, :i], [(tf.int32, [])], lambda i: 0 < i <= 5),
        (lambda i: tf.scatter_nd(i, tf.zeros([30]), [6]), [(tf.int32, [30, 1])], lambda i: i < 6),
        (lambda b: tf.image.crop_and_resize(tf.zeros([2, 8, 8, 3]), tf.zeros([30, 4]), b, [4, 4]),
         [(tf.int32, [30])], lambda b: b < 2),
        (lambda i, n: tf.one_hot(i, n), [(tf.int32, [30]), (tf.int32, [])], lambda i: i < 4),
    ],
)  # fmt: skip
def test_numbers_are_what_the_op_that_reads_them_takes(build, specs, is_right):
    assert np.all(is_right(_made(build, *specs)[0]))


@pytest.mark.parametrize(
    ("check", "specs"),
    [
        (lambda n: tf.debugging.assert_less(n, 12), [(tf.int32, [50])]),
        (
            lambda n, x: tf.debugging.assert_equal(n, tf.shape(FRAMES)[1]),
            [(tf.int32, []), (tf.float32, [LENGTH])],
        ),
        (lambda n, m: tf.debugging.assert_less(n, m), [(tf.int32, [5]), (tf.int32, [5])]),
        (
            lambda n, m, k: tf.group(
                tf.debugging.assert_less(n, m), tf.debugging.assert_less(m, k)
            ),
            [(tf.int32, [5]), (tf.int32, [5]), (tf.int32, [5])],
        ),
        (lambda n: tf.debugging.assert_positive(n), [(tf.int32, [500])]),
        (lambda x: tf.debugging.assert_near(tf.reduce_sum(x, 1), 1.0), [(tf.float32, [5, 3])]),
        (lambda x: tf.debugging.assert_non_negative(x), [(tf.float32, [50])]),
        (lambda x: tf.debugging.assert_equal(x, tf.transpose(x)), [(tf.float32, [3, 3])]),
        (lambda n: tf.debugging.assert_equal(tf.sort(n), n), [(tf.int64, [9])]),
        (
            lambda x, ends: tf.RaggedTensor.from_row_splits(x, ends).row_splits,
            [(tf.float32, [9]), (tf.int32, [4])],
        ),
        (
            lambda x, rows: tf.RaggedTensor.from_row_lengths(x, rows).row_splits,
            [(tf.float32, [9]), (tf.int64, [4])],
        ),
        (lambda b: tf.debugging.Assert(tf.reduce_all(b), [b]), [(tf.bool, [9])]),
        (lambda x: tf.linalg.cholesky(x + 1e-3 * tf.eye(8)), [(tf.float32, [8, 8])]),
        (lambda x: tf.debugging.assert_less(doubled(x), 9.0), [(tf.float32, [50])]),
    ],
)
@pytest.mark.parametrize("is_function", [False, True])
def test_what_a_step_asserts_of_its_inputs_holds(check, specs, is_function):
    """A run with what was made up does not fail."""

    def build(*inputs):
        with tf.control_dependencies([check(*inputs)]):
            return tf.identity(inputs[0])

    _made(tf.function(build) if is_function else build, *specs)


@pytest.mark.parametrize("shape", [[], [5]])
def test_how_often_a_loop_runs_is_at_most_what_its_counter_indexes(shape):
    @tf.function
    def build(lengths):
        total = tf.zeros([5])
        for step in tf.range(tf.reduce_max(lengths)):
            total += tf.where(step < lengths, tf.constant(FRAMES)[:, step, 0], 0.0)
        return total

    assert _made(build, (tf.int32, shape))[0].min() > 0


def test_floats_that_are_cast_to_an_index_are_whole():
    def build(ids):
        return tf.gather(_table(7), tf.cast(ids, tf.int32))

    assert _limit(build, tf.float32) == 7


def test_dtypes_shapes_and_seeds():
    specs = [
        TensorSpec(f"{dtype}:0", dtype, shape)
        for dtype, shape in [
            ("float32", (3, 2)),
            ("bfloat16", (2,)),
            ("complex64", (2,)),
            ("bool", (50,)),
            ("string", (3,)),
            ("uint8", (4,)),
            ("int32", ()),
            ("float64", (0, 2)),
        ]
    ]
    graph = tf.Graph()
    with graph.as_default():
        for spec in specs:
            v1.placeholder(tf.as_dtype(spec.dtype), spec.shape, name=spec.dtype)
    fetches = [spec.tensor for spec in specs]
    feeds = generate_feeds(graph.as_graph_def(), specs, fetches, seed=3)
    assert list(feeds) == fetches
    for spec in specs:
        assert feeds[spec.tensor].shape == spec.shape
        assert feeds[spec.tensor].dtype == tf.as_dtype(spec.dtype).as_numpy_dtype
    assert set(feeds["bool:0"]) == {False, True}
    assert all(isinstance(value, bytes) for value in feeds["string:0"])
    with graph.as_default(), v1.Session() as session:
        session.run(fetches, feeds)
    again = generate_feeds(graph.as_graph_def(), specs, fetches, seed=3)
    other = generate_feeds(graph.as_graph_def(), specs, fetches, seed=4)
    for tensor, values in feeds.items():
        np.testing.assert_array_equal(values, again[tensor])
    assert not np.array_equal(feeds["float32:0"], other["float32:0"])


def test_what_can_not_be_made_up():
    with pytest.raises(FeedError, match="a resource has no values"):
        generate_feeds(tf.compat.v1.GraphDef(), [TensorSpec("r:0", "resource", ())], [], 0)
    with pytest.raises(FeedError, match="is not complete"):
        generate_feeds(tf.compat.v1.GraphDef(), [TensorSpec("s:0", "string", (-1,))], [], 0)


SPECS = [TensorSpec("x:0", "float32", (2, 3)), TensorSpec("a/s:0", "string", (1,))]


def test_reading(tmp_path):
    path = tmp_path / "feeds.npz"
    x = np.ones((2, 3), np.float32)
    np.savez(path, **{"a/s:0": np.array(["hello"]), "x": x})
    feeds = read_feeds(path, SPECS)
    assert list(feeds) == ["x:0", "a/s:0"]
    np.testing.assert_array_equal(feeds["x:0"], x)
    assert feeds["a/s:0"].tolist() == ["hello"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 3), np.float32)}, r"no array for a/s; add one"),
        ({"X": np.ones(1)}, "has no input 'X', it has x, a/s"),
        ({"x": np.ones((3, 2), np.float32)}, r"shape \[3, 2\], wanted \[2, 3\]"),
        ({"x": np.ones((2, 3))}, "is float64, wanted float32"),
        ({"x": np.array([[None] * 3] * 2)}, "wanted an .npz of plain arrays"),
    ],
)
def test_reading_what_does_not_fit(tmp_path, arrays, message):
    path = tmp_path / "feeds.npz"
    np.savez(path, **arrays)
    with pytest.raises(FeedError, match=message):
        read_feeds(path, SPECS)


def test_reading_what_is_no_npz(tmp_path):
    with pytest.raises(FeedError, match="there is no such file"):
        read_feeds(tmp_path / "nothing.npz", SPECS)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(FeedError, match=r"wanted an \.npz"):
        read_feeds(tmp_path / "text.npz", SPECS)
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(FeedError, match="File is not a zip file"):
        read_feeds(tmp_path / "one.npy", SPECS)
    with pytest.raises(FeedError, match="it is a device"):
        read_feeds("/dev/zero", SPECS)


def test_what_is_not_fed_is_not_unpacked(tmp_path, monkeypatch):
    """A small file may unpack to gigabytes: shapes are read of headers."""
    path = tmp_path / "feeds.npz"
    np.savez_compressed(path, x=np.zeros((1 << 20, 3), np.float32), nobody=np.zeros(1 << 24))
    monkeypatch.setattr(np.lib.format, "read_array", None)
    assert given_shapes(str(path)) == {"x": (1 << 20, 3), "nobody": (1 << 24,)}
    with pytest.raises(FeedError, match=r"shape \[1048576, 3\]"):
        read_feeds(str(path), SPECS)
