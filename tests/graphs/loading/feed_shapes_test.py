"""Shapes of inputs: declared, told, or guessed and said."""

import dataclasses

import pytest
import tensorflow as tf

from graphs.errors import FeedError, FetchError
from graphs.graph_view import GraphView
from graphs.loading.feed_shapes import find_feeds, write_shapes
from graphs.loading.load_options import LoadOptions
from graphs.source_model import Signature, TensorSpec

v1 = tf.compat.v1


def _find(build, options=None, signature=None, producer=None):
    graph = tf.Graph()
    with graph.as_default():
        out = tf.identity(build(), name="out")
    graph_def = graph.as_graph_def()
    if producer is not None:
        graph_def.versions.producer = producer
    signatures = {"f": signature} if signature else {}
    options = options or LoadOptions()
    return find_feeds(GraphView(graph_def), [out.name], signature, signatures, options)


def _placeholder(*shape, dtype=tf.float32):
    return v1.placeholder(dtype, shape, name="x")


@pytest.mark.parametrize(
    ("shape", "expected", "num_guesses"),
    [
        ((2, 3), (2, 3), 0),
        ((None, 3), (32, 3), 1),
        ((None, None), (32, 16), 2),
        ((None, None, None, 3), (32, 224, 224, 3), 3),
        ((None, None, None, 64), (32, 16, 16, 64), 3),
        ((), (), 0),
    ],
)
def test_unknown_dimensions_are_guessed(shape, expected, num_guesses):
    feeds = _find(lambda: _placeholder(*shape))
    assert feeds.specs == (TensorSpec("x:0", "float32", expected),)
    assert len(feeds.guessed) == num_guesses


def test_arrays_to_feed_tell_their_shapes():
    options = LoadOptions(fed_shape={"x": (7, 3)})
    feeds = _find(lambda: _placeholder(None, 3), options)
    assert feeds.specs[0].shape == (7, 3) and feeds.guessed == ()
    told = dataclasses.replace(options, input_shape={"x": (5, 3)})
    assert _find(lambda: _placeholder(None, 3), told).specs[0].shape == (5, 3)
    with pytest.raises(FeedError, match=r"batch_size 5: --feed or .* says otherwise, x \[7,3\]"):
        _find(lambda: _placeholder(None, 3), dataclasses.replace(options, batch_size=5))
    wrong = LoadOptions(fed_shape={"x": (7, 4), "y": (2,)})  # which read_feeds tells
    assert _find(lambda: _placeholder(None, 3), wrong).specs[0].shape == (32, 3)


def test_a_batch_size_fills_leading_dimensions_only():
    feeds = _find(lambda: _placeholder(None, None), LoadOptions(batch_size=5))
    assert feeds.specs[0].shape == (5, 16)
    assert feeds.guessed == ("input x: dimension 1 unknown, taken as 16",)
    _find(lambda: _placeholder(5, 3), LoadOptions(batch_size=5))
    with pytest.raises(FeedError, match=r"no input has an unknown leading dimension.*x \[4,3\]"):
        _find(lambda: _placeholder(4, 3), LoadOptions(batch_size=5))
    with pytest.raises(FeedError, match=r"x \[4,\?\]; .*, or fill others with --input_shape"):
        _find(lambda: _placeholder(4, None), LoadOptions(batch_size=5))


def test_unknown_ranks():
    feeds = _find(lambda: v1.placeholder(tf.float32, name="x"))
    assert feeds.specs[0].shape == ()
    assert feeds.guessed == ("input x: rank unknown, taken as a scalar",)
    # In old graphs an empty shape meant an unknown one.
    assert _find(lambda: _placeholder(), producer=20).guessed == feeds.guessed

    def multiplied():
        return v1.placeholder(tf.float32, name="x") @ tf.zeros([3, 2])

    with pytest.raises(FeedError, match=r"'MatMul' \(MatMul\) needs one; give it with --input_sh"):
        _find(lambda: tf.raw_ops.MatMul(a=v1.placeholder(tf.float32, name="x"), b=tf.zeros([3, 2])))
    told = _find(multiplied, LoadOptions(input_shape={"x": (4, 3)}))
    assert (told.specs[0].shape, told.guessed) == ((4, 3), ())


def test_signatures_know_more_than_placeholders_and_name_inputs():
    signature = Signature({"image": TensorSpec("x:0", "float32", (-1, 8))}, {})
    feeds = _find(lambda: _placeholder(None, None), signature=signature)
    assert feeds.specs[0].shape == (32, 8)
    told = LoadOptions(input_shape={"image": (1, 8)})
    assert _find(lambda: _placeholder(None, None), told, signature).specs[0].shape == (1, 8)
    with pytest.raises(FeedError, match=r"the model declares \[\?,8\]"):
        _find(lambda: _placeholder(None, None), LoadOptions(input_shape={"x": (1, 9)}), signature)


def test_any_tensor_can_be_a_signatures_input():
    signature = Signature({"h": TensorSpec("hidden:0", "float32", (-1, 4))}, {})
    feeds = _find(
        lambda: tf.identity(_placeholder(None, 9)[:, :4], name="hidden"), signature=signature
    )
    assert feeds.specs == (TensorSpec("hidden:0", "float32", (32, 4)),)


def test_only_what_the_run_needs_is_fed():
    def build():
        v1.placeholder(tf.float32, [2], name="unused")
        return _placeholder(2) * v1.placeholder_with_default(1.0, [], name="rate")

    assert [spec.tensor for spec in _find(build).specs] == ["x:0"]
    with pytest.raises(FetchError, match=r"no input 'unused', it has x$"):
        _find(build, LoadOptions(input_shape={"unused": (2,)}))


def test_shapes_are_written_into_a_copy():
    graph = tf.Graph()
    with graph.as_default():
        _placeholder(None, 3)
    graph_def = graph.as_graph_def(add_shapes=True)
    written = write_shapes(graph_def, [TensorSpec("x:0", "float32", (5, 3))])
    (node,), (before,) = written.node, graph_def.node
    assert [dim.size for dim in node.attr["shape"].shape.dim] == [5, 3]
    assert "_output_shapes" not in node.attr
    assert [dim.size for dim in before.attr["shape"].shape.dim] == [-1, 3]


def test_options_are_checked():
    for wrong in ({"mode": "trian"}, {"batch_size": 0}, {"input_shape": {"x": (-1, 2)}}):
        with pytest.raises(ValueError, match="want"):
            LoadOptions(**wrong)
