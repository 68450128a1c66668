"""A problem with control edges added is the same problem, and the reference agrees on it."""

import numpy as np
import pytest
from numba import typeof
from numpy.testing import assert_allclose

from tests.builders import Op, build_problem, random_executor, random_problem
from tests.reference_simulator import reference_run
from tfplace.choosing.scheduling.edges import order_edges, with_order_edges
from tfplace.compilation.ahead import RULES_1_TO_6, WITH_EXECUTOR
from tfplace.compilation.warm_up import tiny_problem
from tfplace.simulation.arrays import simulation_arrays
from tfplace.simulation.simulator import Simulator


def some_edges(rng, problem, device_of_op):
    """Edges between ops of one device that lead forward in a random topological order."""
    graph = problem.graph
    producer, user, _ = graph.op_edges()
    depth = rng.random(graph.num_ops)
    for op in range(graph.num_ops):
        depth[op] = max([depth[op], *(depth[producer[user == op]] + 0.01)])
    sorted_ops = np.argsort(depth).tolist()
    pairs = [
        (a, b)
        for i, a in enumerate(sorted_ops)
        for b in sorted_ops[i + 1 :]
        if device_of_op[a] == device_of_op[b] and rng.random() < 0.3
    ]
    return order_edges([a for a, _ in pairs], [b for _, b in pairs])


@pytest.mark.parametrize("seed", range(40))
def test_simulator_and_reference_agree_with_edges(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    if seed % 2:
        problem = random_executor(rng, problem)
    device_of_op = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
    edged = with_order_edges(problem, some_edges(rng, problem, device_of_op))
    placement = edged.renumbered(device_of_op)
    makespan, peaks = Simulator(edged.problem, 1).run(placement)
    expected, expected_peaks = reference_run(edged.problem, placement.tolist())
    assert_allclose(makespan, expected, rtol=1e-9)
    assert peaks.tolist() == expected_peaks
    # For anything else all would be compiled once more, in a quarter of a minute.
    kind = RULES_1_TO_6 if problem.executor is None else WITH_EXECUTOR
    assert typeof(simulation_arrays(edged.problem)) == typeof(simulation_arrays(tiny_problem(kind)))


def test_an_edge_is_a_use_of_a_tensor_without_bytes_and_ops_move_no_further_than_they_must():
    ops = [Op("a"), Op("b"), Op("c"), Op("d", inputs=("c:0",)), Op("e", inputs=("a:0", "^b"))]
    problem = build_problem(ops)
    edged = with_order_edges(problem, order_edges([3, 1, 1], [0, 4, 0]))
    graph = edged.problem.graph
    assert graph.op_names == ["b", "c", "d", "a", "e"]
    assert edged.op_at.tolist() == [1, 2, 3, 0, 4]
    # b had a control tensor, which its second edge uses, too; d got one.
    assert graph.num_tensors == problem.graph.num_tensors + 1
    pairs = {
        (graph.op_names[graph.tensor_producer[t]], int(graph.tensor_bytes[t]), graph.op_names[o])
        for t, o in zip(graph.use_tensor, graph.use_op, strict=True)
        if graph.tensor_output[t] == -1
    }
    assert pairs == {("b", 0, "a"), ("b", 0, "e"), ("d", 0, "a")}


def test_no_edges_change_nothing():
    problem = random_problem(np.random.default_rng(3))
    edged = with_order_edges(problem, order_edges([], []))
    for name in ("tensor_producer", "tensor_bytes", "use_tensor", "use_op"):
        assert np.array_equal(getattr(edged.problem.graph, name), getattr(problem.graph, name))


def test_a_cycle_is_an_error():
    problem = build_problem([Op("a"), Op("b", inputs=("a:0",))])
    with pytest.raises(ValueError, match="close no cycle"):
        with_order_edges(problem, order_edges([1], [0]))
