"""Which axis of each input is the batch, found and told."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.errors import NothingToSplitError, UsageError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.source_model import TensorSpec
from rewrite.split.decision import Split
from rewrite.split.reading.batch_axes import apart, candidates, read_batch_axes, told_axes
from rewrite.split.split_model import StepToSplit
from tests.rewrite.split.run_step import assert_same_steps

FEEDS = [TensorSpec("step_x:0", "float32", (5, 8, 3)), TensorSpec("step_y:0", "int64", (8,))]
NAMES = {"x": "step_x:0", "step_x": "step_x:0", "step_x:0": "step_x:0",
         "y": "step_y:0", "step_y": "step_y:0", "other": "z:0"}  # fmt: skip


@pytest.mark.parametrize("name", ["x", "step_x", "step_x:0"])
def test_an_input_has_several_names(name):
    told = told_axes(FEEDS, {name: 1}, NAMES)
    assert told == {"step_x:0": 1}
    assert candidates(FEEDS, {}, told)[0] == (8, {"step_x:0": 1, "step_y:0": 0})


def test_an_input_that_is_not_split():
    assert candidates(FEEDS, {}, told_axes(FEEDS, {"x": -1}, NAMES)) == [(8, {"step_y:0": 0})]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"z": 0}, "the step has no input 'z', it has x (step_x), y (step_y)"),
        ({"other": 0}, "the step has no input 'other'"),
        ({"step_z": 0}, "nearest: 'step_y', 'step_x'"),
        ({"y": 1}, r"wanted one of its 1 axes, counted from 0, or -1; its shape is \[8\]"),
    ],
)
def test_what_is_no_input_or_no_axis(given, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(").replace(")", r"\)")):
        told_axes(FEEDS, given, NAMES)


def test_a_first_axis_of_any_size_is_the_batch_and_none_of_a_fixed_size():
    """More ops of a step may know the feature axis: it still is no batch."""
    feeds = [TensorSpec("x:0", "float32", (7, 4)), TensorSpec("n:0", "float32", (4,))]
    assert candidates(feeds, {"x:0": [0]}, {}) == [(7, {"x:0": 0})]
    assert candidates(feeds, {"x:0": [0]}, {"x:0": 1})[0] == (4, {"x:0": 1, "n:0": 0})
    time = [TensorSpec("x:0", "float32", (6, 9, 4))]  # a fixed batch, and any number of steps
    assert [size for size, _ in candidates(time, {"x:0": [1]}, {})] == [9, 6]


def test_of_equally_likely_sizes_that_of_larger_inputs_is_the_batch():
    feeds = [TensorSpec("seed:0", "int32", (2,)), TensorSpec("x:0", "float32", (7, 5))]
    assert candidates(feeds, {}, {})[0] == (7, {"x:0": 0})


def test_a_first_axis_of_few_inputs_may_be_the_batch_and_a_later_one_is_none():
    points = [TensorSpec(f"{name}:0", "float32", (9, 1)) for name in "xt"]
    boundary = [TensorSpec(f"{name}:0", "float32", (3, 1)) for name in "abc"]
    assert [size for size, _ in candidates([*points, *boundary], {}, {})] == [3, 9]
    labels = [TensorSpec("x:0", "float32", (4, 8)), TensorSpec("y:0", "int64", (4,))]
    assert candidates(labels, {}, {}) == [(4, {"x:0": 0, "y:0": 0})]


def test_what_lies_behind_a_batch_of_one_is_no_batch():
    picture = [TensorSpec("x:0", "float32", (1, 8, 8, 3))]
    assert candidates(picture, {}, {}) == []
    assert candidates(picture, {}, {"x:0": 1}) == [(8, {"x:0": 1})]
    assert candidates(picture, {"x:0": [1]}, {}) == []


def test_two_seeds_are_no_batch_of_two():
    seeds = [TensorSpec(f"seed_{name}:0", "int32", (2,)) for name in "ab"]
    feeds = [*seeds, TensorSpec("x:0", "float32", (7, 5))]
    assert candidates(feeds, {}, {})[0] == (7, {"x:0": 0})
    labels = [TensorSpec("y:0", "int64", (2,)), TensorSpec("x:0", "float32", (2, 5))]
    assert candidates(labels, {}, {})[0] == (2, {"y:0": 0, "x:0": 0})
    assert candidates(seeds[:1], {}, {}) == [(2, {"seed_a:0": 0})]


def test_an_input_has_one_batch_axis():
    assert read_batch_axes(["a=b=1", "y=-1", "y=-1"]) == {"a=b": 1, "y": -1}
    with pytest.raises(UsageError, match="'y=0': found y=-1 before; wanted one axis"):
        read_batch_axes(["y=-1", "y=0"])


def _accumulated(batches):
    """A step that adds up the gradients of a few batches, of inputs that hold them all."""
    weight = tf.Variable(tf.ones((4, 3)), name="weight")

    def gradient_of(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weight)
            loss = tf.reduce_mean(losses)
        return tape.gradient(loss, weight)

    def step(x, y):
        gradient = batches(gradient_of, x, y)
        weight.assign_sub(0.1 * tf.clip_by_norm(gradient, 1.0))
        return {"center": tf.reduce_mean(x, 0)}

    return weight, step


def _in_a_loop(gradient_of, x, y):
    x, y, total = tf.reshape(x, [3, 4, 4]), tf.reshape(y, [3, 4]), tf.zeros((4, 3))
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, total: (i + 1, total + gradient_of(x[i], y[i])), (0, total)
    )[1]


BATCHES = {
    "pieces": lambda gradient_of, x, y: tf.add_n(
        [gradient_of(*each) for each in zip(tf.split(x, 3), tf.split(y, 3), strict=True)]
    ),
    "slices": lambda gradient_of, x, y: tf.add_n(
        [gradient_of(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
    ),
    "a loop": _in_a_loop,
}


@pytest.mark.parametrize("how", BATCHES)
def test_a_step_that_takes_its_inputs_apart_into_batches(how, tmp_path):
    module = tf.Module()
    module.weight, step = _accumulated(BATCHES[how])
    specs = [tf.TensorSpec([12, 4], tf.float32), tf.TensorSpec([12], tf.int32)]
    step = tf.function(step, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path), signatures={"train_step": step})
    model = StepToSplit(load(str(tmp_path), LoadOptions()))
    split = model.split(3)
    assert split.decisions.batch == 4
    multiplied = [n for n in split.flat.graph_def.node if n.op in ("MatMul", "While")]
    answers = split.decisions.answer_of_op
    assert multiplied and all(isinstance(answers[node.name], Split) for node in multiplied)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(12, 4)), "y": rng.integers(0, 3, 12)}
    feeds = {
        spec.tensor: arrays[spec.tensor.removeprefix("train_step_")[0]].astype(spec.dtype)
        for spec in split.flat.feeds
    }
    assert_same_steps(split.flat, split.step, feeds, variables_rtol=1e-4, variables_atol=1e-6)
    assert model.split(5).decisions.batch == 12  # more shards than entries of one batch


def test_of_two_axes_that_along_which_more_work_is_split(tmp_path):
    """Many small ops work on an image's rows, but its filters don't work along them."""
    module = tf.Module()
    module.filter = tf.Variable(tf.ones((3, 3, 3, 3)), name="filter")

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.conv2d(x, module.filter, 1, "SAME") - x))
        module.filter.assign_sub(0.1 * tape.gradient(loss, module.filter))
        rows = tf.reduce_mean(x, [0, 2, 3])
        for change in (tf.tanh, tf.sin, tf.square, tf.exp, tf.cos, tf.abs, tf.sigmoid, tf.atan):
            rows = change(rows)
        return {"loss": loss, "rows": rows}

    step = tf.function(step, input_signature=[tf.TensorSpec([7, 4, 4, 3], tf.float32)])
    tf.saved_model.save(module, str(tmp_path), signatures={"train_step": step})
    split = StepToSplit(load(str(tmp_path), LoadOptions())).split(2)
    assert split.decisions.batch == 7


def saved_step(folder, step, *shapes):
    """A model with this step of inputs of these shapes, a, b, ..., as tfplace takes it to split."""
    specs = [tf.TensorSpec(shape, name=name) for name, shape in zip("abcdef", shapes, strict=False)]
    step = tf.function(step, input_signature=specs)
    tf.saved_model.save(tf.Module(), str(folder), signatures={"train_step": step})
    return StepToSplit(load(str(folder), LoadOptions()))


def test_of_two_batches_that_of_which_more_work_is_split(tmp_path):
    def step(points, edge, wanted):
        weights = tf.constant([[1.0, 2.0]])
        at_edge = tf.reduce_mean(tf.square(edge @ weights - wanted))
        return {"loss": at_edge + tf.reduce_mean(tf.tanh(points @ weights))}

    model = saved_step(tmp_path, step, (64, 1), (6, 1), (6, 2))
    split = model.split(2).decisions
    assert split.batch == 64 and len(split.axis_of_feed) == 1
    assert model.split(8).decisions.batch == 64  # more shards than the other one has entries


def test_a_step_of_which_nothing_works_on_parts_is_not_split(tmp_path):
    model = saved_step(tmp_path, lambda x: {"y": tf.sort(tf.cumsum(x))}, (6,))
    with pytest.raises(NothingToSplitError, match="along axis 0 of train_step_a: found no op that"):
        model.split(3)


def open_reading(step, *shapes):
    """The inputs of each batch that a step of inputs of these shapes may have, -1 for any size."""
    specs = [tf.TensorSpec([None if n < 0 else n for n in shape]) for shape in shapes]
    graph = tf.function(step).get_concrete_function(*specs).graph
    size = 6
    feeds = [
        TensorSpec(each.name, "float32", tuple(size if n < 0 else n for n in shape))
        for each, shape in zip(graph.inputs, shapes, strict=True)
    ]
    flat = flatten(graph.as_graph_def(), feeds, [each.name for each in graph.outputs])
    open_axes = {
        feed.tensor: [axis for axis, n in enumerate(shape) if n < 0]
        for feed, shape in zip(feeds, shapes, strict=True)
    }
    number = {feed.tensor: place for place, feed in enumerate(feeds)}
    (reading,) = candidates(feeds, open_axes, {})
    found = apart(flat, reading, open_axes, {})
    return [{number[feed]: axis for feed, axis in axes.items()} for _, axes in found]


def in_a_loop(x, y):
    """What the sizes of a loop's result say is only known if it is looked into."""
    return tf.while_loop(lambda i, _: i < 2, lambda i, z: (i + 1, z + y * x), (0, x))[1]


def in_time(x, y):
    """A sum over time, in a loop, and a label of each of the batch."""
    zeros = tf.zeros_like(x[0])
    body = lambda i, z: (i + 1, tf.tanh(z + x[i]))  # noqa: E731
    z = tf.while_loop(lambda i, _: i < tf.shape(x)[0], body, (0, zeros))[1]
    return tf.reduce_sum(z, 1) * y


APART = {
    "labels": (lambda x, y: tf.reduce_sum(x, 1) - y, [(-1, 3), (-1,)], [{0: 0, 1: 0}]),
    "rows with labels and without": (
        lambda x, y, z: (tf.reduce_sum(x, 1) - y, tf.reduce_sum(z)),
        [(-1, 3), (-1,), (-1, 3)],
        [{2: 0}, {0: 0, 1: 0}],
    ),
    "times of each row": (
        lambda x, y: tf.reshape(x, [-1, 3]) * tf.reshape(y, [-1, 1]),
        [(-1, 4, 3), (-1, 4)],
        [{0: 0, 1: 0}],
    ),
    "rows and queries": (
        lambda x, y: tf.matmul(x, y, transpose_b=True),
        [(-1, 3), (-1, 3)],
        [{0: 0}, {1: 0}],
    ),
    "in a loop": (in_a_loop, [(-1, 3), (-1, 3)], [{0: 0, 1: 0}]),
    "pairs": (lambda x, a: a @ x, [(-1, 3), (-1, -1)], [{1: 0}, {1: 1, 0: 0}]),
    "time-major in a loop": (in_time, [(-1, -1, 3), (-1,)], [{0: 0}, {0: 1, 1: 0}]),
}


@pytest.mark.parametrize("what", APART)
def test_inputs_are_one_batch_where_an_op_needs_it(what):
    step, shapes, wanted = APART[what]
    assert open_reading(step, *shapes) == wanted


def test_inputs_that_are_named_are_one_batch():
    feeds = [TensorSpec("x:0", "float32", (6, 3)), TensorSpec("y:0", "float32", (6, 3))]
    with tf.Graph().as_default() as graph:
        for feed in feeds:
            tf.compat.v1.placeholder(tf.float32, (None, 3), feed.tensor[0])
    flat = flatten(graph.as_graph_def(), feeds, ["x:0", "y:0"])
    both = {"x:0": 0, "y:0": 0}
    reading, open_axes = (6, both), {"x:0": [0], "y:0": [0]}
    assert apart(flat, reading, open_axes, both) == [reading]
    assert apart(flat, reading, open_axes, {"y:0": 0}) == [(6, {"y:0": 0})]
    assert apart(flat, reading, open_axes, {}) == [(6, {"x:0": 0}), (6, {"y:0": 0})]
