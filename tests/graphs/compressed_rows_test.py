"""Tests of graphs.graph_edges: each owner's items, against a search for them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphs.graph_edges import row_starts


@given(st.lists(st.integers(0, 5), max_size=12))
def test_rows_are_each_owners_items(owners):
    items = np.sort(np.array(owners, dtype=np.int32))
    rows = row_starts(np.array(owners, dtype=np.int32), 6)
    assert rows.dtype == np.int64 and len(rows) == 7
    for owner in range(6):
        assert items[rows[owner] : rows[owner + 1]].tolist() == [owner] * owners.count(owner)


def test_nobody_owns_nothing():
    assert row_starts(np.zeros(0, np.int32), 0).tolist() == [0]
