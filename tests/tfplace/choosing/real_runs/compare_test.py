"""Placements that are compared are run once each, however many names they have."""

import types

import numpy as np
import pytest

from tfplace.choosing.real_runs.compare import distinct_runs


@pytest.mark.parametrize(
    ("order", "first_of", "graphs"),
    [
        (None, {"given": "given", "single": "given", "placed": "placed"}, ["given", "placed"]),
        (  # the model as it came has no order: it is another graph, though it lies where they do
            object(),
            {"given": "given", "single": "single", "placed": "placed"},
            ["given", "single", "placed"],
        ),
    ],
)
def test_equal_placements_are_one_graph(order, first_of, graphs):
    prepared = types.SimpleNamespace(
        order=order, placed_run_graph=lambda placement, in_order: (placement.tolist(), in_order)
    )
    zeros = np.zeros(2, dtype=np.int32)
    placements = {"given": zeros, "single": zeros.copy(), "placed": zeros + 1}
    made, alias = distinct_runs(prepared, placements)
    assert alias == first_of and list(made) == graphs
    assert made["given"] == ([0, 0], False) and made["placed"] == ([1, 1], True)
