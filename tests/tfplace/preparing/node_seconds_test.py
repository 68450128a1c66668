"""Seconds of nodes out of steps that were looked at, worked by hand."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.tfplace.preparing.executed_graph_test import node_defs
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.training_run import ExecutedNode
from tfplace.preparing.executed_run import ExecutedRun, steady
from tfplace.preparing.node_seconds import traced_nodes

HERE, THERE = "/device:GPU:0", "/device:CPU:0"
ALONE = np.array([1.0, 1.0, 1.0, 1.0])


NODES = node_defs("a Relu", "b MatMul a a", "c Add b b", "rare Neg c")


def _trace(*rows: tuple[str, str, float, float]) -> StepTrace:
    """Rows of (op, device, start, end)."""
    return StepTrace(
        tuple(op for op, _, _, _ in rows),
        ("",) * len(rows),
        tuple(device for _, device, _, _ in rows),
        np.array([start for _, _, start, _ in rows]),
        np.array([end for _, _, _, end in rows]),
        np.array([op.startswith("edge") for op, _, _, _ in rows], bool),
    )


def _run(traces: Sequence[StepTrace], *nodes: str, wall: float, dispatch: float = 0.0) -> Any:
    executed = [ExecutedNode(name, op, HERE, ()) for name, op in (n.split() for n in nodes)]
    return ExecutedRun(traces, np.array([wall]), dispatch, executed)


AS_WRITTEN = ("a Relu", "b MatMul", "c Add", "rare Neg")
STEP = _trace(("a", HERE, 0, 1), ("b", HERE, 2, 5), ("c", HERE, 5, 6), ("rare", HERE, 6, 7))


def test_wall_time_is_what_the_ops_add_up_to() -> None:
    """7 s with an empty step of 0.2 s: 6.8 s of work, 6 of them in ops, 0.2 s for each op."""
    found = traced_nodes(_run([STEP], *AS_WRITTEN, wall=7.0, dispatch=0.2), NODES, ALONE, HERE)
    np.testing.assert_allclose(found.seconds, [1.2, 3.2, 1.2, 1.2])
    np.testing.assert_allclose(found.overhead_seconds, 0.2)
    np.testing.assert_allclose(found.wall_time_coverage, 6.0 / 6.8)
    assert not found.is_absent.any()


def test_ops_shrink_where_tracing_slowed_them() -> None:
    found = traced_nodes(_run([STEP], *AS_WRITTEN, wall=3.0), NODES, ALONE, HERE)
    np.testing.assert_allclose(found.seconds, [0.5, 1.5, 0.5, 0.5])
    assert (found.overhead_seconds, found.wall_time_coverage) == (0.0, 1.0)


def test_rows_stand_for_themselves_where_an_empty_step_seemed_to_take_longer() -> None:
    """As on a machine that another program took meanwhile: no op is free for that."""
    found = traced_nodes(_run([STEP], *AS_WRITTEN, wall=7.0, dispatch=8.0), NODES, ALONE, HERE)
    np.testing.assert_allclose(found.seconds, [1.0, 3.0, 1.0, 1.0])
    assert (found.overhead_seconds, found.wall_time_coverage) == (0.0, 1.0)


def test_an_op_that_runs_in_one_step_of_four_costs_a_quarter() -> None:
    without = _trace(("a", HERE, 0, 1), ("b", HERE, 1, 4), ("c", HERE, 4, 6))
    traces = [STEP, without, without, without]
    found = traced_nodes(_run(traces, *AS_WRITTEN, wall=6.0), NODES, ALONE, HERE)
    np.testing.assert_allclose(found.seconds, [1.0, 3.0, 2.0, 0.25])


def test_an_op_that_never_runs_is_not_one_that_is_fused() -> None:
    """c took b over; rare is part of what runs but did not run."""
    step = _trace(("a", HERE, 0, 1), ("c", HERE, 1, 5))
    run = _run([step], "a Relu", "c _FusedMatMul", "rare Neg", wall=5.0)
    found = traced_nodes(run, NODES, np.array([1.0, 3.0, 1.0, 1.0]), HERE)
    np.testing.assert_array_equal(found.seconds, [1.0, 3.0, 1.0, np.nan])
    np.testing.assert_array_equal(found.is_absent, [False, True, False, False])


def test_what_ran_on_another_device_is_not_known_of_this_one() -> None:
    step = _trace(
        ("a", THERE, 0, 1), ("edge_1_a", HERE, 1, 2), ("b", HERE, 2, 4), ("c", HERE, 4, 5)
    )
    run = _run([step], "a Relu", "b MatMul", "c Add", wall=5.0)
    found = traced_nodes(run, NODES, ALONE, HERE)
    np.testing.assert_array_equal(found.seconds, [np.nan, 2.0, 1.0, 0.0])
    np.testing.assert_array_equal(found.is_absent, [False, False, False, True])
    assert found.wall_time_coverage == 0.8


def test_gaps_are_shared_by_all_that_ran_and_count_once_per_slot() -> None:
    step = _trace(("a", HERE, 0, 2), ("b", HERE, 1, 3), ("c", HERE, 5, 6), ("rare", HERE, 5, 6))
    found = traced_nodes(_run([step], *AS_WRITTEN, wall=6.0), NODES, ALONE, HERE, slots=2)
    np.testing.assert_allclose(found.overhead_seconds, 2 * 2.0 / 4)
    np.testing.assert_allclose(found.seconds, [3.0, 3.0, 2.0, 2.0])


def test_disturbed_steps_do_not_count() -> None:
    slow = _trace(("a", HERE, 0, 1), ("b", HERE, 1, 9), ("c", HERE, 9, 10), ("rare", HERE, 10, 11))
    run = dataclasses.replace(
        _run([STEP, slow, STEP], *AS_WRITTEN, wall=6.0), step_seconds=np.array([6.0, 6.0, 11.0])
    )
    found = traced_nodes(run, NODES, ALONE, HERE)
    np.testing.assert_allclose(found.seconds, [1.0, 3.0, 1.0, 1.0])
    assert (found.num_steps, found.num_disturbed) == (3, 1)


def test_a_run_of_which_nothing_is_seen() -> None:
    found = traced_nodes(_run([_trace()], *AS_WRITTEN, wall=1.0), NODES, ALONE, HERE)
    assert np.isnan(found.seconds).all()
    assert found.wall_time_coverage == 0.0


def test_steady_values() -> None:
    assert steady([1.0]).tolist() == [True]
    assert steady([1.0, 1.05, 1.3, 1.09]).tolist() == [True, True, False, True]
    assert steady([5.0, 1.0, 5.0, 1.0, 5.0]).tolist() == [False, True, False, True, False]
