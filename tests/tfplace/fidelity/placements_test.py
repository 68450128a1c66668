"""Placements to judge: distinct, feasible, of all kinds; structured ones worked by hand."""

import itertools

import numpy as np
import pytest

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


def _instance(problem):
    return Instance(problem, np.zeros(problem.num_ops, dtype=np.int32))


def test_all_kinds_that_run_and_none_twice():
    instance = _instance(unrolled_lstm(num_steps=2, machine=CPUS))
    judged = placements_to_judge(instance, 9, seed=0)
    assert [j.kind for j in judged[:4]] == list(KINDS)
    assert len({j.device_of_op.tobytes() for j in judged}) == len(judged) == 9
    assert all(
        outcome.source == "simulated"
        for outcome in SimulatingEvaluator(instance.problem).evaluate(
            np.stack([j.device_of_op for j in judged])
        )
    )
    again = placements_to_judge(instance, 9, seed=0)
    assert [j.device_of_op.tolist() for j in again] == [j.device_of_op.tolist() for j in judged]
    (single,) = placements_to_judge(instance, 1, seed=0)
    assert single.kind == "single" and len(set(single.device_of_op.tolist())) == 1


def test_all_that_a_graph_has_and_no_more():
    judged = placements_to_judge(_instance(build_problem([Op("a")], CPUS)), 30, seed=0)
    assert sorted(j.device_of_op.tolist() for j in judged) == [[0], [1]]
    ops = [Op("a"), Op("b"), Op("c")]
    judged = placements_to_judge(_instance(build_problem(ops, CPUS)), 30, seed=0)
    assert sorted(j.device_of_op.tolist() for j in judged) == [
        list(placement) for placement in itertools.product([0, 1], repeat=3)
    ]


def test_what_lacks_memory_is_not_judged():
    # Two fit a device together, three don't.
    machine = Machine(2, memory=2, types=("CPU", "CPU"))
    ops = [Op(name, outputs=(), persistent=1) for name in "abc"]
    judged = placements_to_judge(_instance(build_problem(ops, machine)), 30, seed=0)
    assert len(judged) == 6
    assert {int(j.device_of_op.sum()) for j in judged} == {1, 2}


def test_layers_hold_their_gradients_too():
    names = ["w/read", "cell_0/mul", "cell_1/mul", "gradients/cell_1/mul_grad/mul",
             "gradients/cell_0/mul_grad/mul", "gradients_1/w/sum",
             "gradient_tape/cell_1/add"]  # fmt: skip
    problem = build_problem([Op(name) for name in names], CPUS)
    assert layer_of_op(problem).tolist() == [0, 1, 2, 2, 1, 0, 2]


def test_structured_placements_cut_order_and_layers():
    # Eight seconds in order; layers x and y of three and five, which interleave.
    names = ["x/a", "x/b", "y/a", "x/c", "y/b", "y/c", "y/d", "y/e"]
    problem = build_problem([Op(name) for name in names], CPUS)
    placements = {j.name: j.device_of_op.tolist() for j in structured_placements(problem)}
    assert CUT_SHARES[0] == 0.5
    assert placements["topological cut at 50%"] == [0, 0, 0, 1, 1, 1, 1, 1]
    assert placements["topological cut at 90%"] == [0, 0, 0, 0, 0, 0, 0, 1]
    assert placements["layers cut at 50%"] == [0, 0, 1, 0, 1, 1, 1, 1]
    assert placements["layers in turn"] == [0, 0, 1, 0, 1, 1, 1, 1]
    assert placements["4 stripes"] == [0, 1, 1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("num_devices", [2, 3])
def test_a_structured_placement_is_legal_and_leaves_the_cpu_alone(num_devices):
    ops = [Op(f"layer{n % 3}/op", pin=0 if n == 4 else -1) for n in range(9)]
    problem = build_problem(ops, Machine(num_devices + 1))
    for judged in structured_placements(problem):
        assert judged.kind == "structured"
        on_cpu = np.flatnonzero(judged.device_of_op == 0)
        assert on_cpu.tolist() == [4], judged.name
