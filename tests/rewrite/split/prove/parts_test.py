"""Arrays are put together as their state says."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite.split.prove.parts import together
from rewrite.split.states import SUM, WHOLE, Sharded


def test_parts_make_a_whole_as_their_state_says():
    parts = [np.array([1.0, 2.0]), np.array([3.0])]
    (joined,) = together(parts, Sharded(0), (2, 1), is_mean=False)
    assert joined.tolist() == [1.0, 2.0, 3.0]
    terms = [np.array([3.0]), np.array([6.0])]
    assert [each.tolist() for each in together(terms, SUM, (2, 1), is_mean=False)] == [[9.0]]
    assert [each.tolist() for each in together(terms, SUM, (2, 1), is_mean=True)] == [[4.0]]
    assert together(terms, WHOLE, (2, 1), is_mean=False) == terms
    with pytest.raises(ValueError, match="the parts have the shapes"):
        together(parts, Sharded(0), (1, 2), is_mean=False)
