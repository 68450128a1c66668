import numpy as np

from tests.builders import Machine, Op, build_problem, unrolled_lstm
from tfplace.fidelity.placements import (
    CUT_SHARES,
    KINDS,
    layer_of_op,
    placements_to_judge,
    structured_placements,
)
from tfplace.search.instance import Instance
from tfplace.simulation.evaluator import SimulatingEvaluator

CPUS = Machine(2, bandwidth=1e9, types=("CPU", "CPU"))


def _task(problem):
    return Instance(problem, np.zeros(problem.num_ops, dtype=np.int32))


def test_all_kinds_that_run_and_none_twice():
    task = _task(unrolled_lstm(num_steps=2, machine=CPUS))
    judged = placements_to_judge(task, 9, seed=0)
    assert [j.kind for j in judged[:4]] == list(KINDS)
    assert len({j.device_of_op.tobytes() for j in judged}) == len(judged) == 9
    assert all(
        outcome.source == "simulated"
        for outcome in SimulatingEvaluator(task.problem).evaluate(
            np.stack([j.device_of_op for j in judged])
        )
    )
    again = placements_to_judge(task, 9, seed=0)
    assert [j.device_of_op.tolist() for j in again] == [j.device_of_op.tolist() for j in judged]


def test_fewer_where_a_graph_has_no_more():
    judged = placements_to_judge(_task(build_problem([Op("a")], CPUS)), 30, seed=0)
    assert sorted(j.device_of_op.tolist() for j in judged) == [[0], [1]]


def test_layers_hold_their_gradients_too():
    names = ["w/read", "cell_0/mul", "cell_1/mul", "gradients/cell_1/mul_grad/mul",
             "gradients/cell_0/mul_grad/mul", "gradients_1/w/sum"]  # fmt: skip
    problem = build_problem([Op(name) for name in names], CPUS)
    assert layer_of_op(problem).tolist() == [0, 1, 2, 2, 1, 0]


def test_structured_placements_cut_order_and_layers():
    # Eight seconds in order; layers x and y of three and five, which interleave.
    names = ["x/a", "x/b", "y/a", "x/c", "y/b", "y/c", "y/d", "y/e"]
    problem = build_problem([Op(name) for name in names], CPUS)
    found = {j.name: j.device_of_op.tolist() for j in structured_placements(problem)}
    assert CUT_SHARES[0] == 0.5
    assert found["topological cut at 50%"] == [0, 0, 0, 1, 1, 1, 1, 1]
    assert found["layers cut at 50%"] == [0, 0, 1, 0, 1, 1, 1, 1]
    assert found["layers in turn"] == [0, 0, 1, 0, 1, 1, 1, 1]
    assert found["4 stripes"] == [0, 1, 1, 0, 0, 1, 1, 1]
