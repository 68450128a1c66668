"""Shards in order: activations of one at a time, and pipelines that work backward early."""

import numpy as np
import pytest

from graphs.problem import Infeasible
from tests.builders import Machine, Op, build_problem
from tests.tables.league_orders import Case, in_our_order
from tfplace.choosing.scheduling.anchors import anchors_of
from tfplace.choosing.scheduling.list_schedules import in_flight_edges, ordered, weights_last
from tfplace.grouping.copies import shard_of_op
from tfplace.simulation.simulator import Simulator

SIZE = 100
"""Bytes of an activation."""


def training(num_layers, num_shards, machine, seconds=1.0, in_two=False):
    """A chain of equal layers forward and backward for each shard; layer i pinned to none.

    Backward takes twice as long, needs what forward made, and hands on as much. With `in_two` it
    is two ops: one hands the gradient of its input on, the other makes that of a weight.
    """
    ops = []
    for layer in range(num_layers):
        for m in range(num_shards):
            above = (f"f{layer - 1}/shard_{m}:0",) if layer else ()
            ops.append(Op(f"f{layer}/shard_{m}", seconds, above, (SIZE,)))
    for layer in reversed(range(num_layers)):
        for m in range(num_shards):
            inputs = (f"f{layer}/shard_{m}:0",)
            if layer + 1 < num_layers:
                inputs += (f"b{layer + 1}/shard_{m}:0",)
            ops.append(Op(f"b{layer}/shard_{m}", (1 if in_two else 2) * seconds, inputs, (1,)))
            if in_two:
                ops.append(Op(f"w{layer}/shard_{m}", seconds, inputs, (1,)))
    made = "w" if in_two else "b"
    for layer in range(num_layers):
        gradients = tuple(f"{made}{layer}/shard_{m}:0" for m in range(num_shards))
        ops.append(Op(f"u{layer}", 0.001, gradients, ()))
    return build_problem(ops, machine)


def layer_of(name):
    return int(name[1:].partition("/")[0])


@pytest.mark.parametrize("num_shards", [4, 8])
def test_one_shard_at_a_time_fits_where_all_at_once_do_not(num_shards):
    layers = 12
    memory = (layers + 4) * SIZE
    problem = training(layers, num_shards, Machine(1, memory=memory, types=["GPU"]))
    found = ordered(problem, np.zeros(problem.num_ops, dtype=np.int32))
    assert isinstance(found.without, Infeasible)
    assert not isinstance(found.outcome, Infeasible)
    assert found.without.peak_bytes[0] > (num_shards - 1) * found.outcome.peak_bytes[0]
    assert found.outcome.step_seconds == pytest.approx(found.without.step_seconds)


@pytest.mark.parametrize("layers_each", [2, 3])
def test_a_pipeline_has_bubble_and_peaks_of_one_forward_one_backward(layers_each):
    stages, shards = 4, 8
    machine = Machine(stages, bandwidth=1e9, types=["GPU"] * stages)
    problem = training(stages * layers_each, shards, machine)
    stage = [layer_of(name) // layers_each for name in problem.graph.op_names]
    found = ordered(problem, np.array(stage, dtype=np.int32))
    bubble = 1.0 - 3.0 * layers_each * shards / found.outcome.step_seconds
    assert bubble <= 1.1 * (stages - 1) / (shards + stages - 1)
    for number, peak in enumerate(found.outcome.peak_bytes):
        in_flight = (stages - number) * layers_each
        assert peak <= (in_flight + 1.1) * SIZE  # and what the stage before has sent
    assert found.without.peak_bytes[0] >= shards * layers_each * SIZE


@pytest.mark.parametrize(
    ("stages", "shards", "units", "in_flight"),
    [(2, 4, 13.1, 4), (4, 8, 27.1, 9), (4, 16, 51.1, 6), (8, 16, 55.1, 17)],
)
def test_gradients_of_weights_fill_the_gaps_of_a_pipeline(stages, shards, units, in_flight):
    """1F1B takes 15, 33, 57 and 69. What takes equally long with fewer shards begun is taken."""
    problem = training(stages, shards, Machine(stages, bandwidth=1e9), in_two=True)
    stage = np.array([layer_of(name) for name in problem.graph.op_names], dtype=np.int32)
    found = ordered(problem, stage)
    assert found.outcome.step_seconds <= units < 3 * (shards + stages - 1)
    assert max(found.outcome.peak_bytes) <= (in_flight + 0.2) * SIZE


def test_a_memory_limit_keeps_the_shards_in_flight_few():
    machine = Machine(8, bandwidth=1e9, memory=1020)
    problem = training(8, 16, machine, in_two=True)
    stage = np.array([layer_of(name) for name in problem.graph.op_names], dtype=np.int32)
    found = ordered(problem, stage)
    assert not isinstance(found.outcome, Infeasible)
    assert found.outcome.step_seconds <= 62.1


@pytest.mark.parametrize(("memory", "step"), [(8, 141), (16, 135)])
def test_what_begins_a_moment_too_early_is_held_back(memory, step):
    """Zero bubble's greedy scheduler takes as long; without the rounds it was 148 and 135."""
    assert in_our_order(Case(4, 8, (5, 6, 4), 0, memory))[0] == step


def test_what_another_stage_waits_for_goes_before_what_only_updates_wait_for():
    problem = training(3, 2, Machine(3, bandwidth=1e9), in_two=True)
    names = problem.graph.op_names
    rank = weights_last(problem, np.array([layer_of(name) for name in names], dtype=np.int32))
    at = dict(zip(names, rank.tolist(), strict=True))
    middle = [f"{what}1/shard_{m}" for what in "bfw" for m in range(2)]
    assert sorted(middle, key=at.__getitem__) == middle
    assert at["b2/shard_1"] < at["w2/shard_0"]  # no stage comes after the last one


def test_without_stages_no_gradient_is_put_off():
    problem = training(3, 2, Machine(2, bandwidth=1e9), in_two=True)
    assert weights_last(problem, shard_of_op(problem).clip(0)) is None


def test_devices_with_one_shard_each_go_on_as_they_like():
    problem = training(3, 2, Machine(2, types=["GPU"] * 2))
    on = shard_of_op(problem).clip(0)
    schedule = Simulator(problem, 1).schedule(on)
    assert len(in_flight_edges(problem, schedule, anchors_of(problem))) == 0
