"""What a calibrated cluster says of its executor, and what is left of a link for the wire."""

import dataclasses

import numpy as np

from graphs.cluster import Cluster, Device, TransferWork
from graphs.executor_model import ExecutorModel, executor_of, shares_memory, wire


def _worker(task: int, host: str = "box", kind: str = "CPU", **figures: float) -> Device:
    name = f"/job:worker/task:{task}/device:{kind}:0"
    return Device(name, kind, 10**9, address=f"{host}:{2222 + task}", **figures)


def _cluster(devices: list[Device], work: TransferWork | None = None) -> Cluster:
    size = (len(devices), len(devices))
    return Cluster("hand", "duplex", devices, np.zeros(size), np.ones(size), transfer_work=work)


def test_only_different_cpus_of_one_host_share_memory():
    devices = [_worker(0), _worker(1), _worker(2, host="other"), _worker(3, kind="GPU"), _worker(4)]
    together = np.zeros((5, 5), dtype=bool)
    for one, other in ((0, 1), (0, 4), (1, 4)):
        together[one, other] = together[other, one] = True
    assert shares_memory(_cluster(devices)).tolist() == together.tolist()


def test_without_transfer_work_there_is_no_executor():
    assert executor_of(_cluster([_worker(0), _worker(1)]), ["MatMul"]) is None


def test_an_executor_holds_the_ends_work_the_cheap_ops_and_both_orders():
    apart = 1.0 - np.eye(2)
    work = TransferWork(1.0 * apart, 0.1 * apart, 2.0 * apart, 0.2 * apart)
    cluster = _cluster([_worker(0), _worker(1)], work)
    executor = executor_of(cluster, ["MatMul", "Identity", "Const"], op_turn=np.array([2, 0, 1]))
    assert executor is not None
    assert executor.send_seconds[0, 1].tolist() == [1.0, 0.1]
    assert executor.receive_seconds[1, 0].tolist() == [2.0, 0.2]
    assert executor.runs_inline.tolist() == [False, True, True]
    assert executor.op_slowdown is None and executor.shares_memory is None
    # As the traced run listed the ops, and as they are written.
    assert executor.turns().tolist() == [[2, 0, 1], [0, 1, 2]]
    assert executor.sends_first is None
    threads = _cluster([_worker(0), _worker(1, executor_threads=2)], work)
    threaded = executor_of(threads, ["MatMul"])
    assert threaded is not None and threaded.sends_first is not None
    assert threaded.sends_first.tolist() == [False, True]
    by_index = dataclasses.replace(executor, op_turn=None)
    assert by_index.turns().tolist() == [[0, 1, 2]]


def test_an_op_slows_down_between_what_computing_and_what_streaming_ops_do():
    devices = [_worker(0, compute_slowdown=0.1, memory_slowdown=0.5), _worker(1)]
    cluster = _cluster(devices, TransferWork.none(2))
    executor = executor_of(cluster, ["A", "B", "C"], memory_share=np.array([0.0, 0.25, 1.0]))
    assert executor is not None and executor.op_slowdown is not None
    np.testing.assert_allclose(executor.op_slowdown, [[0.1, 0.0], [0.2, 0.0], [0.5, 0.0]])
    assert executor.shares_memory is not None
    assert executor.shares_memory.tolist() == [[False, True], [True, False]]


def test_the_wire_has_what_the_two_ends_leave_of_a_link():
    ends = np.array([[[0.0, 0.0], [0.5, 0.25]], [[2.0, 1.0], [0.0, 0.0]]])
    executor = ExecutorModel(ends, ends, np.zeros(0, dtype=bool))
    latency, rate = wire(executor, np.full((2, 2), 3.0), np.ones((2, 2)))
    # From 0 to 1: 3 - 2 * 0.5 s, and 1 - 2 * 0.25 s for each byte; from 1 to 0 nothing is left.
    assert latency[0, 1] == 2.0 and rate[0, 1] == 2.0
    assert latency[1, 0] == 0.0 and rate[1, 0] == np.inf
