"""Traced seconds in place of analytic ones, and what ops that were never traced cost."""

import dataclasses

import numpy as np

from graphs.cluster import Device
from graphs.pricing.costs import Costs, Provenance
from tfplace.preparing.node_seconds import TracedNodes
from tfplace.preparing.traced_costs import device_kind, with_traced_seconds

CPU = Device("/device:CPU:0", "CPU", 1 << 30)
GPU = Device("/device:GPU:0", "GPU", 1 << 30)
INF = np.inf
# Two products, a sum and a text op that no GPU has.
TYPES = ("MatMul", "MatMul", "Add", "AsString")
ALONE = {device_kind(CPU): np.array([4.0, 2.0, 1.0, 1.0]),
         device_kind(GPU): np.array([0.4, 0.2, 0.1, INF])}  # fmt: skip
ANALYTIC = Costs(
    np.stack([ALONE[device_kind(CPU)], ALONE[device_kind(GPU)]], axis=1),
    "analytic",
    np.array([True, True, True, False]),
    ("a note",),
)
EACH = np.arange(4, dtype=np.int32)


def _traced(*seconds: float, absent: tuple[int, ...] = (), overhead: float = 0.0) -> TracedNodes:
    is_absent = np.isin(np.arange(len(seconds)), absent)
    place = np.arange(len(seconds))[::-1].copy()
    return TracedNodes(
        np.array(seconds), is_absent, place, overhead, 0.9, num_steps=5, num_disturbed=0
    )


def _with(traced: dict[Device, TracedNodes], op_of_node=EACH, costs=ANALYTIC) -> Costs:
    by_kind = {device_kind(device): nodes for device, nodes in traced.items()}
    return with_traced_seconds(costs, by_kind, ALONE, TYPES, op_of_node, (CPU, GPU))


def test_every_device_kind_traced() -> None:
    found = _with({CPU: _traced(8, 3, 0, 5, absent=(2,)), GPU: _traced(1, 1, 1, np.nan)})
    np.testing.assert_array_equal(found.op_seconds, [[8, 1], [3, 1], [0, 1], [5, INF]])
    assert found.num_ops_by_provenance() == {
        Provenance.ANALYTIC: 0, Provenance.SCALED: 0, Provenance.ABSENT: 1, Provenance.TRACED: 3
    }  # fmt: skip
    assert (found.source, found.wall_time_coverage) == ("measured", 0.9)
    assert found.covered.all()
    assert found.notes == ("a note",)


def test_an_untraced_op_is_priced_as_its_type_shows() -> None:
    """Traced MatMuls: 8 s of work where 4 were priced; all: 8.5 s where 5 were."""
    nan = np.nan
    found = _with({CPU: _traced(8.25, nan, 0.75, nan, overhead=0.25)})
    np.testing.assert_allclose(
        found.op_seconds[:, 0], [8.25, 2.0 * 2.0 + 0.25, 0.75, 8.5 / 5.0 + 0.25]
    )
    np.testing.assert_array_equal(found.op_seconds[:, 1], ANALYTIC.op_seconds[:, 1])
    assert found.source == "mixed"
    assert found.num_ops_by_provenance() == {
        Provenance.ANALYTIC: 3, Provenance.SCALED: 1, Provenance.ABSENT: 0, Provenance.TRACED: 0
    }  # fmt: skip
    np.testing.assert_array_equal(found.covered, [True, True, True, False])


def test_a_small_op_shows_what_a_kernel_takes_to_start_not_a_rate() -> None:
    """A scalar's Add took 4 us where 3 ns were priced; a whole one takes no thousand times more."""
    alone = {device_kind(CPU): np.array([4.0, 2.0, 3e-9, 1.0])}
    traced = _traced(2.0, np.nan, 4e-6, np.nan)
    types = ("MatMul", "Add", "Add", "AsString")
    found = with_traced_seconds(
        ANALYTIC, {device_kind(CPU): traced}, alone, types, EACH, (CPU, GPU)
    )
    np.testing.assert_allclose(found.op_seconds[:, 0], [2.0, 1.0 + 4e-6, 4e-6, 0.5])


def test_where_nothing_was_traced_the_price_stands() -> None:
    found = _with({CPU: _traced(*[np.nan] * 4)})
    np.testing.assert_array_equal(found.op_seconds, ANALYTIC.op_seconds)
    assert found.source == "analytic"


def test_a_units_nodes_add_up_and_it_is_known_as_its_least_known_node_that_costs() -> None:
    op_of_node = np.array([0, 0, 1, 1], dtype=np.int32)
    costs = dataclasses.replace(
        ANALYTIC, op_seconds=np.array([[6.0, 0.6], [2.0, INF]]), covered=np.array([True, True])
    )
    found = _with({CPU: _traced(8, 0, 1, np.nan, absent=(1,))}, op_of_node, costs)
    np.testing.assert_allclose(found.op_seconds[:, 0], [8.0, 1.0 + 9.0 / 5.0])
    assert found.provenance is not None
    assert found.provenance[:, 0].tolist() == [Provenance.TRACED, Provenance.SCALED]


def test_disturbance_and_load_are_told() -> None:
    busy = dataclasses.replace(_traced(1, 1, 1, 1), num_disturbed=2, background_share=0.5)
    found = _with({CPU: busy})
    assert [note.split(":")[0] for note in found.notes] == [
        "a note",
        "2 of 5 traced steps were slower than the rest and left out",
        "while ops were timed, other programs used 50 % of this machine",
    ]


def test_ops_turns_follow_the_list_of_what_ran() -> None:
    """Of nodes listed last to first; nodes 0 and 3 are one op."""
    op_of_node = np.array([0, 1, 2, 0], dtype=np.int32)
    costs = dataclasses.replace(
        ANALYTIC, op_seconds=ANALYTIC.op_seconds[:3], covered=ANALYTIC.covered[:3]
    )
    found = _with({CPU: _traced(1, 1, 1, 1)}, op_of_node, costs)
    assert found.op_turn is not None
    assert found.op_turn.tolist() == [0, 2, 1]
