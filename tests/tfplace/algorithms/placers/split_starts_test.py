"""Placements that a search of a split step begins with: data parallel ones, and a pipeline."""

import dataclasses

import numpy as np

from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem
from tests.split_steps import by_name, split_step
from tfplace.algorithms.placers.data_parallel import (
    data_parallel,
    data_parallel_starts,
    pipeline,
    pipelines,
    shards_by_speed,
)
from tfplace.algorithms.table import one_shot, policy_of, split_starts
from tfplace.choosing.unsplit_baselines import for_all_shards
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.simulation.evaluator import SimulatingEvaluator

FAST_AND_SLOW = (9.0, 1.0, 3.0)  # of a CPU and two GPUs


def test_a_device_computes_whole_shards_and_sums_lie_with_their_variable():
    problem = split_step(4)
    where = by_name(problem, data_parallel(problem))
    for op in ("l0", "l1", "grad/l0", "grad/l1"):
        assert [where[f"{op}/shard_{m}"] for m in range(4)] == [1, 2, 1, 2]
    for layer in (0, 1):
        assert where[f"w{layer}"] == where[f"update{layer}"] == where[f"grad/l{layer}/summed"]
    assert where["w0"] != where["w1"]


def test_variables_are_spread_as_they_are_used_or_the_largest_first():
    problem = split_step(2, num_layers=3)  # of 8, 16 and 24 bytes
    largest_first = by_name(problem, data_parallel(problem))
    as_used = by_name(problem, data_parallel(problem, in_order_of_use=True))
    # Of devices that hold as much the last one gets a variable: the input's parts lie on the first.
    assert [largest_first[f"w{layer}"] for layer in range(3)] == [1, 1, 2]
    assert [as_used[f"w{layer}"] for layer in range(3)] == [2, 1, 2]


def test_a_piece_of_a_weight_lies_with_its_shard_however_large_it_is():
    names = ["piece/shard_0", "piece/shard_1"]
    pieces = [Op(n, 0.0, outputs=(8,), alloc=(0,), persistent=8 - m) for m, n in enumerate(names)]
    products = [Op(f"l/shard_{m}", 1.0, (f"{name}:0",), (4,)) for m, name in enumerate(names)]
    problem = build_problem([*pieces, *products], Machine(num_devices=3))
    for placement in data_parallel_starts(problem):
        where = by_name(problem, placement)
        assert [where[name] for name in names] == [where["l/shard_0"], where["l/shard_1"]]
    assert where["l/shard_0"] != where["l/shard_1"]


def test_a_faster_device_gets_more_shards():
    problem = split_step(4, seconds=FAST_AND_SLOW)
    assert shards_by_speed(problem) == [1, 1, 1, 2]
    assert shards_by_speed(split_step(4)) == [1, 2, 1, 2]


def test_uneven_shards_are_the_best_start_on_uneven_devices():
    problem = split_step(4, seconds=FAST_AND_SLOW)
    outcomes = SimulatingEvaluator(problem).evaluate(data_parallel_starts(problem))
    steps = [outcome.step_seconds for outcome in outcomes]
    assert min(steps) < 0.6 * steps[0]


def test_equal_devices_have_no_start_twice():
    problem = split_step(2, num_layers=1)
    assert len(data_parallel_starts(problem)) == 1


def test_a_pipelines_layers_lie_on_one_device_with_all_shards():
    problem = split_step(3, num_layers=4)
    where = by_name(problem, pipeline(problem))
    for layer in range(4):
        assert len({where[f"l{layer}/shard_{m}"] for m in range(3)}) == 1
        assert where[f"w{layer}"] == where[f"update{layer}"]
    assert {where[f"l{layer}/shard_0"] for layer in range(4)} == {1, 2}


def test_with_twice_as_many_devices_as_shards_a_stage_has_a_device_for_each_shard():
    problem = split_step(2, num_layers=4, num_devices=5)
    narrow, wide = pipelines(problem)
    where = by_name(problem, wide)
    for layer in range(4):
        assert where[f"l{layer}/shard_1"] == where[f"l{layer}/shard_0"] + 1
        assert where[f"w{layer}"] == where[f"l{layer}/shard_0"]
    assert {where[f"l{layer}/shard_0"] for layer in range(4)} == {1, 3}
    assert np.array_equal(narrow, pipeline(problem))


def test_the_unsplit_placement_is_taken_over_for_all_shards():
    problem = split_step(2, num_layers=2)
    whole = split_step(1, num_layers=2)
    names = [name.replace("/shard_0", "").replace("/cut", "") for name in whole.graph.op_names]
    names[1] = "unused"
    unsplit = dataclasses.replace(whole, graph=dataclasses.replace(whole.graph, op_names=names))
    wanted = {"l0": 1, "l1": 2, "grad/l0": 2, "w0": 1, "w1": 2, "update1": 2}
    found = np.array([wanted.get(name, 1) for name in names])
    where = by_name(problem, for_all_shards(problem, unsplit, found))
    assert [where["l1/shard_0"], where["l1/shard_1"], where["w1"]] == [2, 2, 2]
    assert [where["grad/l0/shard_1"], where["grad/l1/shard_1"], where["x/cut"]] == [2, 1, 1]


def test_annealing_a_split_step_is_never_worse_than_its_data_parallel_starts():
    problem = split_step(4, num_layers=3, bandwidth=10.0)
    simulator = SimulatingEvaluator(problem)
    starts = simulator.evaluate(data_parallel_starts(problem))
    instance = Instance(problem, np.ones(problem.num_ops, dtype=np.int32))
    stage = Stage("annealing", lambda best: policy_of("annealing", instance, 0, None))
    result = search([stage], simulator, Limits(60.0, max_trials=2000))
    assert isinstance(result.best.outcome, Measurement)
    assert result.best.outcome.step_seconds < min(start.step_seconds for start in starts)


def test_data_parallelism_is_placed_once_for_baseline_and_starts():
    problem = split_step(2)
    instance = Instance(problem, data_parallel(problem))
    first, pipelines = (start() for start in split_starts(instance, 0))
    assert one_shot("data_parallel", instance, 0) is first
    assert np.array_equal(first[0], data_parallel(problem)) and len(pipelines) == 1
