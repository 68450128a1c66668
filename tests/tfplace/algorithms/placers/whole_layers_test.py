"""Data parallelism of a step some of whose layers are whole: they lie with their weights."""

from tests.builders import Machine, Op, build_problem
from tests.split_steps import by_name
from tfplace.algorithms.placers.data_parallel import data_parallel, data_parallel_starts
from tfplace.simulation.evaluator import SimulatingEvaluator

BYTES = (1000,)


def _experts(num_experts):
    """Experts of two layers each, side by side, between two shards."""
    ops = [Op(f"x/shard_{m}", 0.1, (), BYTES) for m in range(2)]
    for e in range(num_experts):
        for layer in ("up", "down"):
            variable = Op(f"{layer}{e}/w", 0.0, (), BYTES, alloc=(0,), persistent=1000)
            ops.append(variable)
    for e in range(num_experts):
        ops.append(Op(f"joined{e}", 0.0, ("x/shard_0:0", "x/shard_1:0"), BYTES))
        ops.append(Op(f"up{e}", 1.0, (f"joined{e}:0", f"up{e}/w:0"), BYTES))
        ops.append(Op(f"down{e}", 1.0, (f"up{e}:0", f"down{e}/w:0"), BYTES))
        ops.append(Op(f"cut{e}", 0.0, (f"down{e}:0",), (500, 500)))
    for m in range(2):
        ops.append(Op(f"y/shard_{m}", 0.1, tuple(f"cut{e}:{m}" for e in range(num_experts)), BYTES))
    return build_problem(ops, Machine(num_devices=3, latency=0.001, bandwidth=1e5))


def test_an_expert_lies_with_its_weights_and_experts_lie_apart():
    where = by_name(_experts(2), data_parallel(_experts(2), with_layers=True))
    homes = []
    for e in range(2):
        (home,) = {where[f"{layer}{e}{what}"] for layer in ("up", "down") for what in ("", "/w")}
        homes.append(home)
    assert len({*homes}) == 2


def test_a_layer_that_all_others_lead_to_takes_none_of_them_in():
    problem = _experts(4)
    where = by_name(problem, data_parallel(problem, with_layers=True))
    homes = [where[f"down{e}"] for e in range(4)]
    assert homes.count(homes[0]) == 2 and len({*homes}) == 2
    assert all(where[f"up{e}"] == homes[e] for e in range(4))


def test_such_a_start_is_the_best():
    problem = _experts(4)
    steps = [
        each.step_seconds
        for each in SimulatingEvaluator(problem).evaluate(data_parallel_starts(problem))
    ]
    assert min(steps) < 0.9 * steps[0]
