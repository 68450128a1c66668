"""Tests of tfplace.grouping.coarsen."""

import numpy as np
import pytest
from scipy import sparse

from tfplace.grouping.coarsen import minimum_cut


def _two_cliques(size=8, weak=0.01):
    """Two complete graphs, joined by one weak edge."""
    edges = np.kron(np.eye(2), np.ones((size, size)))
    np.fill_diagonal(edges, 0.0)
    edges[0, size] = edges[size, 0] = weak
    return sparse.csr_array(edges)


def test_the_weak_edge_is_cut():
    part = minimum_cut(_two_cliques(), np.ones(16), 2, 0.03, 0)
    assert len(set(part[:8])) == len(set(part[8:])) == 1
    assert part[0] != part[8]
    assert part.dtype == np.int32


def test_parts_weigh_about_the_same():
    ring = sparse.csr_array(np.roll(np.eye(40), 1, axis=1) + np.roll(np.eye(40), -1, axis=1))
    weights = np.where(np.arange(40) < 10, 3e-6, 1e-6)  # any unit: 60e-6 together
    part = minimum_cut(ring, weights, 4, 0.1, 0)
    assert np.bincount(part, weights) == pytest.approx([15e-6] * 4, rel=0.15)


def test_weights_of_nothing_are_no_error():
    edges = _two_cliques()
    part = minimum_cut(edges * 0.0, np.zeros(16), 2, 0.03, 0)
    assert set(part) == {0, 1}


def test_any_seed_will_do():
    assert set(minimum_cut(_two_cliques(), np.ones(16), 2, 0.03, 10**20)) == {0, 1}


def test_same_seed_same_parts():
    ring = sparse.csr_array(np.roll(np.eye(40), 1, axis=1) + np.roll(np.eye(40), -1, axis=1))
    first, again = (minimum_cut(ring, np.ones(40), 8, 0.1, 3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
