"""Tests of tfplace.grouping.fuse."""

import numpy as np

from tests.builders import Machine, Op, build_problem, random_problem, unrolled_lstm
from tfplace.grouping.fuse import fused_problem
from tfplace.simulation.simulator import Simulator

MACHINE = Machine(2, latency=1e-3, bandwidth=1e9, types=["GPU", "GPU"])


def test_small_ops_join_what_they_wait_for_and_lone_inputs_their_user():
    ops = [
        Op("x", 0.0, outputs=(8,)),
        Op("weights", 0.0, outputs=(8,), colocation=0, persistent=100),
        Op("product", 1.0, ("x:0", "weights:0"), (16,)),
        Op("bias", 1e-4, ("product:0",), (16,), temp=5),
        Op("relu", 1e-4, ("bias:0",), (16,)),
        Op("other", 1.0, ("relu:0",), (4,)),
        Op("gradient", 1.0, ("other:0", "relu:0"), (8,)),
        Op("update", 2e-4, ("gradient:0",), (0,), colocation=0),
    ]
    fused = fused_problem(build_problem(ops, MACHINE))
    # The read stays with its variable, x goes to its product, and what follows as well.
    assert fused.fused_of_op.tolist() == [1, 0, 1, 1, 1, 2, 3, 4]
    assert fused.heaviest.tolist() == [1, 2, 5, 6, 7]
    problem, graph = fused.problem, fused.problem.graph
    assert list(graph.op_names) == ["weights", "x", "other", "gradient", "update"]
    assert np.allclose(problem.op_seconds[:, 0], [0.0, 1.0002, 1.0, 1.0, 2e-4])
    # weights, relu, other and gradient are used elsewhere; x, product and bias (40) are not.
    assert graph.tensor_bytes.tolist() == [8, 16, 4, 8]
    assert graph.tensor_producer.tolist() == [0, 1, 2, 3]
    assert list(zip(graph.use_tensor.tolist(), graph.use_op.tolist(), strict=True)) == [
        (0, 1), (1, 2), (1, 3), (2, 3), (3, 4)
    ]  # fmt: skip
    assert graph.op_temp_bytes.tolist() == [0, 5 + 40, 0, 0, 0]
    assert graph.op_persistent_bytes.tolist() == [100, 0, 0, 0, 0]
    assert graph.colocation_group.tolist() == [0, -1, -1, -1, 0]


def test_nothing_joins_what_would_have_to_wait_for_something_else():
    ops = [
        Op("quick", 1.0, outputs=(8,)),
        Op("slow", 5.0, outputs=(8,)),
        Op("late", 1.0, ("quick:0",), (8,)),
        Op("sum", 0.0, ("late:0", "slow:0"), (8,)),
    ]
    fused = fused_problem(build_problem(ops, MACHINE))
    # sum's last input in order of start is late, which must not wait for slow.
    assert fused.problem.num_ops == 4


def test_fused_problems_are_problems_and_places_go_there_and_back():
    rng = np.random.default_rng(2)
    for _ in range(30):
        problem = random_problem(rng)
        fused = fused_problem(problem)
        allowed = fused.problem.allowed()
        # A simulator of it finds out if its ops are out of order.
        simulator = Simulator(fused.problem, 1)
        devices = np.argmax(allowed, axis=1).astype(np.int32)
        assert np.array_equal(fused.reduce(fused.expand(devices)), devices)
        assert np.isfinite(simulator.run(devices)[0])
        assert problem.allowed()[np.arange(problem.num_ops), fused.expand(devices)].all()


def test_seconds_bytes_and_transfers_are_kept():
    rng = np.random.default_rng(5)
    for _ in range(30):
        problem = random_problem(rng, 30)
        fused = fused_problem(problem)
        whole, smaller = problem.graph, fused.problem.graph
        np.testing.assert_allclose(
            fused.problem.op_seconds.sum(axis=0), problem.op_seconds.sum(axis=0)
        )
        assert smaller.op_persistent_bytes.sum() == whole.op_persistent_bytes.sum()
        held = whole.op_temp_bytes.sum() + whole.tensor_alloc_bytes.sum()
        taken = whole.tensor_alloc_bytes[whole.tensor_shares >= 0].sum()
        less = held - smaller.op_temp_bytes.sum() - smaller.tensor_alloc_bytes.sum()
        assert 0 <= less <= taken
        devices = rng.integers(0, problem.num_devices, fused.problem.num_ops)
        of_whole = Simulator(problem, 1).schedule(fused.expand(devices)).transfers
        of_fused = Simulator(fused.problem, 1).schedule(devices).transfers
        assert sorted(zip(of_fused.bytes, of_fused.target, strict=True)) == sorted(
            zip(of_whole.bytes, of_whole.target, strict=True)
        )


def test_an_unrolled_lstm_takes_as_long_with_fewer_ops():
    problem = unrolled_lstm(2, 6, Machine(3, latency=3e-5, bandwidth=1e10))
    fused = fused_problem(problem)
    # Per layer and step, cells have 11 + 22 ops, of which about a third take less than a transfer.
    assert 0.5 * problem.num_ops < fused.problem.num_ops < 0.8 * problem.num_ops
    for device in (1, 2):
        devices = np.full(fused.problem.num_ops, device, dtype=np.int32)
        whole = Simulator(problem, 1).run(fused.expand(devices))[0]
        assert np.isclose(Simulator(fused.problem, 1).run(devices)[0], whole)


def test_what_a_group_hands_on_takes_its_buffer_along():
    ops = [
        Op("x", 1.0, outputs=(8,), shares=("x:0",)),
        Op("product", 1.0, ("x:0",), (16,)),
        Op("bias", 1e-4, ("product:0",), (16,), shares=("?product:0",)),
        Op("shaped", 1e-4, ("bias:0",), (16,), alloc=(0,), shares=("bias:0",)),
        Op("other", 1.0, ("shaped:0",), (4,)),
        Op("seen", 1e-4, ("x:0", "other:0"), (4,), shares=("?other:0",)),
        Op("user", 1.0, ("shaped:0", "seen:0"), outputs=()),
    ]
    fused = fused_problem(build_problem(ops, MACHINE))
    assert fused.fused_of_op.tolist() == [0, 1, 1, 1, 2, 2, 3]
    graph = fused.problem.graph
    assert graph.op_temp_bytes.tolist() == [0, 0, 0, 0]
    assert graph.tensor_alloc_bytes.tolist() == [8, 16, 4]
    assert graph.tensor_shares.tolist() == [0, -1, -1]
    assert not graph.tensor_takes_over.any()
