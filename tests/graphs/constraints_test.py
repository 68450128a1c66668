"""--pin and --no_split: kept exactly, or an error that names what contradicts."""

import numpy as np
import pytest

from graphs import constraints
from graphs.constraints import joined_by_user, matched_ops, pinned_devices, require_possible
from graphs.errors import ConstraintError, UsageError
from tests.builders import Op, build_problem

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
    "device",
    [
        "GPU:0",
        "gpu:0",
        "/gpu:0",
        "/GPU:0",
        "/device:GPU:0",
        "/device:gpu:0",
        "gpu",
        "/job:localhost/replica:0/task:0/device:GPU:0",
    ],
)
def test_a_device_has_many_spellings(device):
    assert pinned_devices([f"loss={device}"], NAMES, DEVICES).tolist() == [-1, -1, -1, 1]


def test_a_spelling_that_may_be_several_is_refused():
    workers = ("/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0")
    assert pinned_devices(["loss=/job:worker/task:1/cpu:0"], NAMES, workers)[-1] == 1
    with pytest.raises(UsageError, match="may be /job:worker/task:0/device:CPU:0, /job"):
        pinned_devices(["loss=/job:worker/cpu:0"], NAMES, workers)


@pytest.mark.parametrize(
    ("pins", "error", "message"),
    [
        (["layer"], UsageError, "wanted REGEX=DEVICE"),
        (["(=GPU:0"], UsageError, "no regular expression"),
        (["layer=GPU:3"], UsageError, "no device 'GPU:3'"),
        (["layer=tpu:0"], UsageError, "no device 'tpu:0'"),
        (["layer=/job:localhost"], UsageError, "no device '/job:localhost'"),
        (["layr=GPU:9"], UsageError, "no op's name matches"),
        (["lozz=GPU:0"], UsageError, "no op's name matches; nearest: 'loss'"),
        (["xyz=GPU:0"], UsageError, "no op's name matches$"),
        (["layer=GPU:0", "layer_1=CPU:0"], ConstraintError, "another --pin"),
    ],
)
def test_impossible_pins_are_told(pins, error, message):
    with pytest.raises(error, match=message):
        pinned_devices(pins, NAMES, DEVICES)


def test_an_expression_that_takes_for_ever_is_refused(monkeypatch):
    monkeypatch.setattr(constraints, "MATCHING_SECONDS", 0.05)
    with pytest.raises(UsageError, match=r"matching 1 ops took more than 0\.05 s"):
        pinned_devices(["(a+)+$=GPU:0"], ["a" * 60 + "b"], DEVICES)


def test_no_split_joins_what_matches_with_what_belongs_together_already():
    colocation = np.array([0, -1, -1, 0], dtype=np.int32)
    assert joined_by_user(["layer"], NAMES, colocation).tolist() == [0, 1, 1, 0]
    assert joined_by_user(["layer_1|loss"], NAMES, colocation).tolist() == [0, -1, 0, 0]


def test_a_contradiction_names_the_ops_and_their_devices():
    ops = [Op("embed", (1.0, np.inf), colocation=0), *map(Op, NAMES[1:3])]
    with pytest.raises(ConstraintError) as caught:
        require_possible(build_problem([*ops, Op("loss", colocation=0, pin=1)]))
    text = str(caught.value)
    assert "'loss' is pinned to /device:GPU:0" in text
    assert "'embed' has kernels only on /device:CPU:0" in text


def test_an_op_without_any_kernel_is_said_to_have_none():
    with pytest.raises(ConstraintError, match="'b' has no kernel on any device;"):
        require_possible(build_problem([Op("a"), Op("b", np.inf)]))


def test_what_expressions_match_is_said():
    names = ("lstm/a", "lstm/b", "loss")
    assert matched_ops(["lstm=GPU:0", "^l.*s$=CPU:0"], ["/b"], names) == [
        "--pin=lstm=GPU:0 matches 2 ops, the first is lstm/a",
        "--pin=^l.*s$=CPU:0 matches 1 op, the first is loss",
        "--no_split=/b matches 1 op, the first is lstm/b",
    ]
