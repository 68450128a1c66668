"""Which axis of each input is the batch, found and told."""

import pytest

from graphs.errors import UsageError
from graphs.source_model import TensorSpec
from rewrite.split.batch_axes import candidates, read_batch_axes, told_axes

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


def test_an_input_has_one_batch_axis():
    assert read_batch_axes(["a=b=1", "y=-1", "y=-1"]) == {"a=b": 1, "y": -1}
    with pytest.raises(UsageError, match="'y=0': found y=-1 before; wanted one axis"):
        read_batch_axes(["y=-1", "y=0"])
