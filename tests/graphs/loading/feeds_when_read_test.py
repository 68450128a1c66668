"""Large inputs are made when they are read, and not before."""

import pickle

import numpy as np
import pytest

from graphs.source_model import TensorSpec
from tfplace.preparing.loaded_model import FeedsWhenRead, made_when_read

LARGE = [TensorSpec("x:0", "float32", (2048, 299, 299, 3)), TensorSpec("y:0", "int32", (2048,))]


class _Maker:
    count = 0

    def __call__(self):
        self.count += 1
        return {"x:0": np.ones(2), "y:0": np.zeros(1)}


def test_small_inputs_and_those_of_open_shape_are_made_at_once():
    for feeds in (LARGE[1:], [*LARGE, TensorSpec("z:0", "int32", None)]):
        make = _Maker()
        assert isinstance(made_when_read(feeds, make), dict) and make.count == 1


def test_large_inputs_are_made_once_when_one_is_read():
    make = _Maker()
    feeds = made_when_read(LARGE, make)
    assert list(feeds) == ["x:0", "y:0"] and len(feeds) == 2 and "z:0" not in feeds
    assert make.count == 0
    assert feeds["x:0"].sum() == 2 and dict(feeds)["y:0"].sum() == 0 and make.count == 1


def test_another_process_gets_arrays():
    feeds = pickle.loads(pickle.dumps(FeedsWhenRead(LARGE, _Maker())))
    assert type(feeds) is dict and feeds["x:0"].tolist() == [1, 1]


def test_what_cant_be_made_up_is_said_when_it_is_read():
    def make():
        raise ValueError("too many")

    feeds = made_when_read(LARGE, make)
    with pytest.raises(ValueError, match="too many"):
        feeds["x:0"]
