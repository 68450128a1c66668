"""Data parallelism over two hosts of two GPUs: what crosses between them, crosses once."""

import numpy as np
import pytest

from graphs.placement import Measurement
from tests.builders import Machine, Op, build_problem
from tests.split_steps import split_step
from tfplace.algorithms.annealing.split_levels import levels_in_turn
from tfplace.algorithms.placers.data_parallel import data_parallel, data_parallel_starts
from tfplace.simulation.evaluator import SimulatingEvaluator

HOSTS = {0: (0, 1), 1: (2, 3)}
HOST_OF_DEVICE = [0, 0, 0, 1, 1]  # a CPU, then GPUs


def _step(num_shards=4, hosts=HOSTS, **options):
    return split_step(num_shards, 4, hosts=hosts, num_devices=5, **options)


def _devices(problem, device_of_op):
    return dict(zip(problem.graph.op_names, np.asarray(device_of_op).tolist(), strict=True))


def _crossing(problem, device_of_op):
    """How many tensors go to a device of another host."""
    host, graph = np.array(HOST_OF_DEVICE), problem.graph
    maker = device_of_op[graph.tensor_producer[graph.use_tensor]]
    user = device_of_op[graph.use_op]
    sent = np.stack([graph.use_tensor, user], axis=1)[host[maker] != host[user]]
    return len(np.unique(sent, axis=0))


@pytest.mark.parametrize("in_order_of_use", [False, True])
def test_sums_and_relays_lie_on_their_hosts_and_with_the_variable_where_it_is(in_order_of_use):
    problem = _step()
    where = _devices(problem, data_parallel(problem, in_order_of_use=in_order_of_use))
    for layer in range(4):
        home = where[f"w{layer}"]
        assert where[f"grad/l{layer}/summed"] == where[f"cast{layer}"] == home
        for host in HOSTS:
            places = {
                where[f"grad/l{layer}/summed/host_{host}"],
                where[f"cast{layer}/relayed/host_{host}"],
            }
            assert len(places) == 1 and HOST_OF_DEVICE[min(places)] == host
            assert HOST_OF_DEVICE[home] != host or places == {home}
    assert {where[f"w{layer}"] for layer in range(4)} == {1, 2, 3, 4}
    away = [
        f"cast{layer}/relayed/host_{1 - HOST_OF_DEVICE[where[f'w{layer}']]}" for layer in range(4)
    ]
    assert {where[name] for name in away} == {1, 2, 3, 4}  # spread as the variables are


def test_weights_that_follow_each_other_come_from_one_host_after_another():
    problem = _step()
    for in_order_of_use in (False, True):
        where = _devices(problem, data_parallel(problem, in_order_of_use=in_order_of_use))
        hosts = [HOST_OF_DEVICE[where[f"w{layer}"]] for layer in range(4)]
        assert hosts in ([1, 0, 1, 0], [0, 1, 0, 1])


def test_what_is_cut_out_of_a_variable_lies_with_it_though_constants_say_where_it_is_cut():
    ops = [Op("where", 0.0, (), (4,)), Op("table", 0.0, (), (64,), alloc=(0,), persistent=64)]
    ops.append(Op("slice", 0.0, ("where:0", "table:0"), (32,)))
    for host, shards in HOSTS.items():
        ops.append(Op(f"slice/relayed/host_{host}", 0.0, ("slice:0",), (32,)))
        ops += [Op(f"user/shard_{m}", 1.0, (f"slice/relayed/host_{host}:0",), (2,)) for m in shards]
    problem = build_problem(ops, Machine(num_devices=5))
    where = _devices(problem, data_parallel(problem))
    assert where["slice"] == where["table"] == 4


@pytest.mark.parametrize(("rows", "is_there"), [(8, True), (128, False)])
def test_rows_are_gathered_where_a_host_has_a_table_that_is_larger(rows, is_there):
    ops = [Op("table", 0.0, (), (64,), persistent=64), Op("ids", 0.0, (), (4,))]
    for host, shards in HOSTS.items():
        ops.append(Op(f"table/relayed/host_{host}", 0.0, ("table:0",), (64,)))
        read = (f"table/relayed/host_{host}:0", "ids:0")
        for m in shards:
            ops.append(Op(f"rows/shard_{m}", 0.1, read, (rows,), type="GatherV2"))
            ops.append(Op(f"user/shard_{m}", 1.0, (f"rows/shard_{m}:0", read[0]), (2,)))
    problem = build_problem(ops, Machine(num_devices=5))
    where = _devices(problem, data_parallel(problem))
    for host, shards in HOSTS.items():
        relay = where[f"table/relayed/host_{host}"]
        assert [where[f"user/shard_{m}"] for m in shards] == [m + 1 for m in shards]
        wanted = [relay if is_there else m + 1 for m in shards]
        assert [where[f"rows/shard_{m}"] for m in shards] == wanted


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


def test_what_a_host_sums_and_hands_on_moves_apart_from_its_variable():
    problem = _step()
    coarsest = levels_in_turn(problem, (4, 8), 0, 0).group_of_op[0]
    group = _devices(problem, coarsest)
    own = {group[f"cast1/relayed/host_{host}"] for host in HOSTS}
    assert len(own) == 2 and group["w1"] not in own
