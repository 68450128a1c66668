"""Shards in order: activations of one at a time, and pipelines that work backward early."""

import numpy as np
import pytest

from graphs.placement import Infeasible
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.order.ordered import ordered

SIZE = 100
"""Bytes of an activation."""


def training(num_layers, num_shards, machine, seconds=1.0):
    """A chain of equal layers forward and backward for each shard; layer i pinned to none.

    Backward takes twice as long, needs what forward made, and hands on as much.
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
            ops.append(Op(f"b{layer}/shard_{m}", 2 * seconds, inputs, (1,)))
    for layer in range(num_layers):
        gradients = tuple(f"b{layer}/shard_{m}:0" for m in range(num_shards))
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


def test_a_pipelines_bubble_is_that_of_one_forward_one_backward():
    stages, shards = 4, 8
    # With this memory no stage holds the activations of more than its distance to the end.
    problem = training(stages, shards, Machine(stages, bandwidth=1e9, types=["GPU"] * stages))
    on = np.array([layer_of(name) for name in problem.graph.op_names], dtype=np.int32)
    found = ordered(problem, on)
    bubble = 1.0 - 3.0 * shards / found.outcome.step_seconds
    assert bubble <= 1.1 * (stages - 1) / (shards + stages - 1)
