"""--pin and --no_split: kept exactly, or an error that names what contradicts."""

import numpy as np
import pytest

from graphs.constraints import joined_by_user, pinned_devices, require_possible
from graphs.errors import ConstraintError, UsageError

NAMES = ("embed", "layer_0/mul", "layer_1/mul", "loss")
DEVICES = ("/device:CPU:0", "/device:GPU:0")


def test_a_pin_takes_all_matching_ops_and_short_device_names():
    assert pinned_devices(["layer=GPU:0", "^loss$=/device:CPU:0"], NAMES, DEVICES).tolist() == [
        -1,
        1,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("pins", "error", "message"),
    [
        (["layer"], UsageError, "wanted REGEX=DEVICE"),
        (["(=GPU:0"], UsageError, "no regular expression"),
        (["layer=GPU:3"], ConstraintError, "no device 'GPU:3'"),
        (["lstm=GPU:0"], ConstraintError, "no op's name matches"),
        (["layer=GPU:0", "layer_1=CPU:0"], ConstraintError, "another --pin"),
    ],
)
def test_impossible_pins_are_told(pins, error, message):
    with pytest.raises(error, match=message):
        pinned_devices(pins, NAMES, DEVICES)


def test_no_split_joins_what_matches_with_what_belongs_together_already():
    colocation = np.array([0, -1, -1, 0], dtype=np.int32)
    assert joined_by_user(["layer"], NAMES, colocation).tolist() == [0, 1, 1, 0]
    assert joined_by_user(["layer_1|loss"], NAMES, colocation).tolist() == [0, -1, 0, 0]


def test_a_contradiction_names_the_ops_and_their_devices():
    seconds = np.array([[1.0, np.inf], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    allowed = np.isfinite(seconds)
    allowed[[0, 3]] = False
    with pytest.raises(ConstraintError) as caught:
        require_possible(
            allowed,
            seconds,
            np.array([-1, -1, -1, 1], dtype=np.int32),
            np.array([0, -1, -1, 0], dtype=np.int32),
            NAMES,
            DEVICES,
        )
    text = str(caught.value)
    assert "'loss' is pinned to /device:GPU:0" in text
    assert "'embed' has kernels only on /device:CPU:0" in text
