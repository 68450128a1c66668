"""The collector rests inside, and is as it was afterwards."""

import gc

import pytest

from graphs.host.freed_memory import uncollected


def test_it_rests_inside_and_is_as_it_was_afterwards():
    assert gc.isenabled()
    with pytest.raises(ValueError), uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()
