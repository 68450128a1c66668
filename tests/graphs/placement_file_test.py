"""placement.json: what it says, defaults, and what is wrong with it in one sentence."""

import json

import numpy as np
import pytest

from graphs.errors import PlacementError
from graphs.placement_file import ops_left_whole, placement_text, read_placement

NAMES = ("a", "b/c", "d")
DEVICES = ("/device:CPU:0", "/device:GPU:0")


def write(tmp_path, text):
    path = tmp_path / "placement.json"
    path.write_text(text)
    return str(path)


def test_every_op_takes_the_device_that_the_file_names(tmp_path):
    path = write(tmp_path, json.dumps({"a": DEVICES[1], "b/c": DEVICES[0], "d": DEVICES[1]}))
    assert read_placement(path, NAMES, DEVICES, np.zeros(3, np.int32)).tolist() == [1, 0, 1]


def test_ops_that_are_not_named_keep_their_default(tmp_path):
    path = write(tmp_path, json.dumps({"d": DEVICES[0]}))
    assert read_placement(path, NAMES, DEVICES, np.ones(3, np.int32)).tolist() == [1, 1, 0]


def test_devices_may_be_spelled_as_tensorflow_takes_them(tmp_path):
    path = write(tmp_path, json.dumps({"a": "/gpu:0", "b/c": "GPU:0", "d": "cpu:0"}))
    assert read_placement(path, NAMES, DEVICES, np.zeros(3, np.int32)).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[1, 2]", "one JSON object"),
        ('{"a": 3}', "strings"),
        ('{"bc": "/device:GPU:0"}', "nearest: 'b/c'"),
        ('{"a": "/device:GPU:7"}', "cluster has no device"),
        ('{"a": "gpu:0", "a": "cpu:0"}', "'a' stands there twice"),
    ],
)
def test_bad_files_are_told(tmp_path, text, message):
    with pytest.raises(PlacementError, match=message):
        read_placement(write(tmp_path, text), NAMES, DEVICES, np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("names", "op", "remedy"),
    [
        (("a/shard_0", "a/shard_1"), "a", "name the op's copies, a/shard_0 and so on"),
        (
            ("a/shard_0", "a/shard_1"),
            "a/shard_2",
            "give the --shards and --order that it was written",
        ),
        (("a", "b"), "a/shard_0", "split otherwise: give the --shards and --order"),
        (("a", "b"), "c/shard_0", "write a fresh file"),
    ],
)
def test_a_placement_of_a_step_that_is_split_otherwise(tmp_path, names, op, remedy):
    path = write(tmp_path, json.dumps({op: DEVICES[0]}))
    with pytest.raises(PlacementError, match=remedy):
        read_placement(path, names, DEVICES, np.zeros(2, np.int32))


def test_how_many_ops_a_file_names_is_said_where_it_leaves_some_open(tmp_path):
    path = write(tmp_path, json.dumps({"d": DEVICES[0]}))
    assert placement_text(path, 1) == path
    assert placement_text(path, 3) == f"{path}: 1 of 3 ops; the others lie as the model came"


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(PlacementError, match="no such file"):
        read_placement(str(tmp_path / "none.json"), NAMES, DEVICES, np.zeros(3, np.int32))


def test_ops_of_a_split_step_that_are_named_without_copies_were_left_whole(tmp_path):
    split = {"a/shard_0": DEVICES[0], "a/shard_1": DEVICES[1], "b/c": DEVICES[0], "d": DEVICES[0]}
    assert ops_left_whole(write(tmp_path, json.dumps(split))) == {"b/c", "d"}
    whole = {"a": DEVICES[0], "b/c": DEVICES[0]}
    assert ops_left_whole(write(tmp_path, json.dumps(whole))) == frozenset()
