"""Made-up strings that a run can decode, and components that fit together."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.loading.feeds import generate_feeds
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _feeds(build, specs):
    with tf.Graph().as_default() as graph:
        fetched = build()
    return generate_feeds(graph.as_graph_def(), specs, [fetched.name], 0)


def test_examples_have_the_features_that_are_parsed():
    features = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "word": tf.io.VarLenFeature(tf.string),
        "id": tf.io.RaggedFeature(tf.int64),
    }

    def build():
        parsed = tf.io.parse_example(v1.placeholder(tf.string, [3], name="e"), features)
        return tf.concat([parsed["x"], tf.cast(parsed["id"].to_tensor(), tf.float32)], 1)

    feeds = _feeds(build, [TensorSpec("e:0", "string", (3,))])
    parsed = tf.io.parse_example(feeds["e:0"], features)
    assert parsed["x"].shape == (3, 2)
    assert len(set(feeds["e:0"].tolist())) == 3
    assert parsed["word"].dense_shape.numpy().tolist() == [3, 2]
    assert parsed["id"].row_lengths().numpy().tolist() == [2, 2, 2]


def test_examples_of_the_first_parser_and_through_a_reshape():
    def build():
        text = tf.reshape(v1.placeholder(tf.string, [2, 1], name="e"), [-1])
        return v1.parse_example(text, {"x": tf.io.FixedLenFeature([], tf.int64)})["x"]

    feeds = _feeds(build, [TensorSpec("e:0", "string", (2, 1))])
    parsed = tf.io.parse_example(feeds["e:0"][:, 0], {"x": tf.io.FixedLenFeature([], tf.int64)})
    assert 0 <= int(tf.reduce_min(parsed["x"])) <= int(tf.reduce_max(parsed["x"])) < 100


def test_pictures_also_where_a_loop_decodes_them():
    def straight():
        return tf.io.decode_png(v1.placeholder(tf.string, [], name="s"))

    def in_loop():
        texts = v1.placeholder(tf.string, [2], name="s")
        return tf.map_fn(lambda s: tf.io.decode_jpeg(s)[0], texts, fn_output_signature=tf.uint8)

    alone = _feeds(straight, [TensorSpec("s:0", "string", ())])["s:0"]
    assert tf.io.decode_image(alone.item()).shape == (16, 16, 3)
    for text in _feeds(in_loop, [TensorSpec("s:0", "string", (2,))])["s:0"]:
        assert tf.io.decode_image(text).shape == (16, 16, 3)


def test_other_strings_are_numbers():
    def build():
        return tf.strings.length(v1.placeholder(tf.string, [4], name="s"))

    words = _feeds(build, [TensorSpec("s:0", "string", (4,))])["s:0"]
    assert all(0 <= int(word) < 100 for word in words)


def test_components_of_a_sparse_placeholder_fit_together():
    def build():
        x = v1.sparse_placeholder(tf.float32, [None, 7], name="x")
        return tf.sparse.sparse_dense_matmul(x, v1.get_variable("w", [7, 2], use_resource=True))

    specs = [
        TensorSpec("x/indices:0", "int64", (3, 2)),
        TensorSpec("x/values:0", "float32", (3,)),
        TensorSpec("x/shape:0", "int64", (2,)),
    ]
    feeds = _feeds(build, specs[:2])
    assert feeds["x/values:0"].shape == (3,)


@pytest.mark.parametrize(
    "weights",
    [
        lambda: v1.get_variable("w", [7, 2], use_resource=True),
        lambda: tf.ones([7, 2]),
        lambda: tf.sqrt(v1.placeholder_with_default(tf.ones([7, 2]), [7, 2])),
    ],
)
def test_components_of_a_sparse_argument_fit_a_product(weights):
    def build():
        indices = v1.placeholder(tf.int64, [3, 2], name="x")
        values = v1.placeholder(tf.float32, [3], name="x_1")
        shape = v1.placeholder(tf.int64, [2], name="x_2")
        sparse = tf.SparseTensor(indices, values, shape)
        return tf.sparse.sparse_dense_matmul(sparse, weights())

    names = [("x:0", "int64", (3, 2)), ("x_1:0", "float32", (3,)), ("x_2:0", "int64", (2,))]
    feeds = _feeds(build, [TensorSpec(*name) for name in names])
    assert feeds["x:0"].tolist() == [[0, 0], [0, 1], [0, 2]]
    assert feeds["x_2:0"].tolist() == [3, 7]


def test_a_sparse_input_of_a_wide_product_takes_no_more_memory_than_its_values():
    """Its cells are numbered; 3 x 2^40 of them would take 24 TiB."""

    def build():
        indices = v1.placeholder(tf.int64, [3, 2], name="x")
        values = v1.placeholder(tf.float32, [3], name="x_1")
        shape = v1.placeholder(tf.int64, [2], name="x_2")
        weights = v1.get_variable("w", [2**40, 1], use_resource=True, initializer=tf.zeros)
        return tf.sparse.sparse_dense_matmul(tf.SparseTensor(indices, values, shape), weights)

    names = [("x:0", "int64", (3, 2)), ("x_1:0", "float32", (3,)), ("x_2:0", "int64", (2,))]
    feeds = _feeds(build, [TensorSpec(*name) for name in names])
    assert feeds["x_2:0"].tolist() == [3, 2**40]
    assert feeds["x:0"].tolist() == [[0, 0], [0, 1], [0, 2]]


def test_row_splits_of_ragged_tensors_fit_their_values():
    def build():
        values = v1.placeholder(tf.float32, [5], name="r")
        splits = v1.placeholder(tf.int64, [3], name="r_1")
        return tf.reduce_sum(tf.RaggedTensor.from_row_splits(values, splits, validate=False), 1)

    specs = [TensorSpec("r:0", "float32", (5,)), TensorSpec("r_1:0", "int64", (3,))]
    feeds = _feeds(build, specs)
    assert feeds["r_1:0"].tolist() == [0, 2, 5]
    empty = [TensorSpec("r:0", "float32", (0,)), TensorSpec("r_1:0", "int64", (0,))]
    with tf.Graph().as_default() as graph:
        v1.placeholder(tf.float32, [None], name="r")
        v1.placeholder(tf.int64, [None], name="r_1")
    feeds = generate_feeds(graph.as_graph_def(), empty, ["r:0", "r_1:0"], 0)
    assert np.array_equal(feeds["r_1:0"], [0])
