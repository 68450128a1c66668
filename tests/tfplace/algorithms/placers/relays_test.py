"""Data parallelism over two hosts of two GPUs: what crosses between them, crosses once."""

import numpy as np
import pytest

from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem
from tests.split_steps import by_name, split_step
from tfplace.algorithms.placers.data_parallel import data_parallel, data_parallel_starts
from tfplace.simulation.evaluator import SimulatingEvaluator

HOSTS = {0: (0, 1), 1: (2, 3)}
HOST_OF_DEVICE = [0, 0, 0, 1, 1]  # a CPU, then GPUs


def _step(num_shards=4, hosts=HOSTS, **options):
    return split_step(num_shards, 4, hosts=hosts, num_devices=5, **options)


def _crossing(problem, device_of_op):
    """How many tensors go to a device of another host."""
    host, graph = np.array(HOST_OF_DEVICE), problem.graph
    maker = device_of_op[graph.tensor_producer[graph.use_tensor]]
    user = device_of_op[graph.use_op]
    sent = np.stack([graph.use_tensor, user], axis=1)[host[maker] != host[user]]
    return len(np.unique(sent, axis=0))


@pytest.mark.parametrize("in_order_of_use", [False, True])
def test_variables_lie_where_they_are_handed_on_first_and_sums_on_their_hosts(in_order_of_use):
    problem = _step()
    where = by_name(problem, data_parallel(problem, in_order_of_use=in_order_of_use))
    for layer, home in enumerate((1, 3, 2, 4)):  # one host after the other, then their second GPU
        assert where[f"w{layer}"] == where[f"cast{layer}"] == home
        assert where[f"grad/l{layer}/summed"] == home
        for shard in range(4):
            assert where[f"cast{layer}/relayed/shard_{shard}"] == shard + 1
        other = where.get(f"grad/l{layer}/summed/shard_{(home + 1) % 4}")
        assert other == (home + 1) % 4 + 1  # the same place on the other host


def test_what_is_cut_out_of_a_variable_lies_with_it_though_constants_say_where_it_is_cut():
    ops = [Op("where", 0.0, (), (4,)), Op("table", 0.0, (), (64,), alloc=(0,), persistent=64)]
    ops.append(Op("slice", 0.0, ("where:0", "table:0"), (32,)))
    read = "slice"
    for shard in (3, 0, 1, 2):
        ops.append(Op(f"slice/relayed/shard_{shard}", 0.0, (f"{read}:0",), (32,)))
        read = f"slice/relayed/shard_{shard}"
        ops.append(Op(f"user/shard_{shard}", 1.0, (f"{read}:0",), (2,)))
    problem = build_problem(ops, Machine(num_devices=5))
    where = by_name(problem, data_parallel(problem))
    assert where["slice"] == where["table"] == 4


def test_each_weight_and_gradient_crosses_once():
    problem, plain = _step(), split_step(4, 4, num_devices=5)
    inputs = 2
    assert _crossing(problem, data_parallel(problem)) == 2 * 4 + inputs
    assert _crossing(plain, data_parallel(plain)) == 2 * 2 * 4 + inputs


def test_several_shards_of_a_device_are_summed_where_they_are():
    problem = _step(8, {0: (0, 1, 4, 5), 1: (2, 3, 6, 7)})
    assert _crossing(problem, data_parallel(problem)) == 2 * 4 + 4


def test_starts_run_wherever_shards_are_dealt():
    problem = _step(seconds=(9.0, 1.0, 1.0, 3.0, 3.0))  # the second host is slower
    outcomes = SimulatingEvaluator(problem).evaluate(data_parallel_starts(problem))
    assert all(isinstance(outcome, Measurement) for outcome in outcomes)
