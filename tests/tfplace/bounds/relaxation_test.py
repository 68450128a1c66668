"""The relaxed problem: classes of devices, and edges that no schedule undercuts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem, fan_out, with_executor
from tests.tfplace.bounds.brute_force import small_problems, some_schedules
from tfplace.bounds.relaxation import backward_edges, device_classes, forward_edges


def test_devices_of_equal_costs_and_slots_are_a_class() -> None:
    ops = [Op("a", (1.0, 2.0, 1.0, 2.0)), Op("b", (3.0, 4.0, 3.0, 4.0), pin=1)]
    machine = Machine(4, slots=(1, 2, 1, 2), memory=(10, 20, 30, 40), memory_reserve=0.25)
    classes = device_classes(build_problem(ops, machine))
    # b is pinned to device 1, so device 3, which it may not use, is of another class.
    assert classes.class_of_device.tolist() == [0, 1, 0, 2]
    assert classes.num_devices.tolist() == [2, 1, 1]
    assert classes.slots.tolist() == [1.0, 2.0, 2.0]
    np.testing.assert_array_equal(classes.seconds, [[1.0, 2.0, 2.0], [np.inf, 4.0, np.inf]])
    assert classes.room_bytes.tolist() == [7 + 22, 15, 30]  # whole bytes of 7.5, 22.5, 15, 30


def test_an_edge_costs_the_quickest_link() -> None:
    ops = [Op("a", outputs=(10, 4)), Op("b", inputs=("a:0", "a:1"))]
    links = [[1.0, 2.0], [5.0, 1.0]]
    edges = forward_edges(build_problem(ops, Machine(2, latency=0.5, bandwidth=links)))
    assert (edges.row.tolist(), edges.source.tolist()) == ([0, 0, 1], [0])
    # The dearer tensor, 10 bytes at 5 a second.
    np.testing.assert_allclose(edges.cost, [0.5 + 2.0])


def test_a_send_is_work_before_the_wire() -> None:
    ops = [Op("a", outputs=(10,)), Op("b", inputs=("a:0",))]
    problem = build_problem(ops, Machine(2, latency=0.5, bandwidth=5.0))
    sent = with_executor(problem, send=(0.25, 0.1), receive=(0.125, 0.05))
    # In all 0.5 + 10 / 5 s, of which the receiver works 0.125 + 10 * 0.05, perhaps later.
    np.testing.assert_allclose(forward_edges(sent).cost, [2.5 - 0.625])


def test_backward_in_time_users_come_first() -> None:
    problem = fan_out(4, size=8, machine=Machine(2, bandwidth=2.0))
    # Time reversed: op n is 5 - n, so the source is op 5, and its four users are 1 to 4.
    backward = backward_edges(problem)
    assert backward.source.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert backward.row.tolist() == [0, 0, 1, 2, 3, 4, 8]


def test_on_one_device_there_is_no_elsewhere() -> None:
    ops = [Op("a", outputs=(6,)), Op("b", inputs=("a:0",))]
    assert forward_edges(build_problem(ops, Machine(1))).cost.tolist() == [np.inf]


@settings(max_examples=60, deadline=None)
@given(small_problems(may_be_stuck=False))
def test_no_transfer_is_quicker_than_its_edge(problem: Problem) -> None:
    edges = forward_edges(problem)
    consumer = np.repeat(np.arange(problem.num_ops), np.diff(edges.row))
    for schedule in some_schedules(problem):
        here = schedule.device_of_op[edges.source] == schedule.device_of_op[consumer]
        least = np.where(here, 0.0, edges.cost)
        waited = schedule.op_start[consumer] - schedule.op_end[edges.source]
        assert (waited >= least - 1e-9 * (1.0 + schedule.makespan)).all()
