"""placement.json: what it says, defaults, and what is wrong with it in one sentence."""

import json

import numpy as np
import pytest

from graphs.errors import PlacementError
from graphs.placement_file import read_placement

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


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(PlacementError, match="no such file"):
        read_placement(str(tmp_path / "none.json"), NAMES, DEVICES, np.zeros(3, np.int32))
