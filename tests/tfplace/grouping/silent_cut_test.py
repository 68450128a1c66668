"""METIS's complaints must not stand in a result."""

import numpy as np
from scipy import sparse

from tfplace.grouping.coarsen import minimum_cut


def test_more_parts_than_vertices_are_cut_without_a_word(capfd):
    edges = sparse.csr_array(np.ones((4, 4)) - np.eye(4))
    print("before")
    for parts in (5, 40, 72):
        part = minimum_cut(edges, np.array([1e9, 1.0, 1.0, 1.0]), parts, 0.03, 1)
        assert part.shape == (4,) and part.min() >= 0 and part.max() < parts
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"
