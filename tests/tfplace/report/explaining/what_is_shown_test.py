"""Heaviest ops, largest transfers, reasons for the CPU."""

import numpy as np

from tests.builders import Machine, Op, build_problem
from tfplace.report.explaining.explained import (
    CHOSEN,
    NO_KERNEL,
    PINNED,
    TIED,
    OnCpu,
    heaviest_ops,
    heaviest_types,
    largest_transfers,
    ops_on_cpu,
    queued_seconds,
    tensor_name,
)
from tfplace.simulation.simulator import Simulator

INF = float("inf")


def placed(problem, placement):
    return problem, Simulator(problem).schedule(np.array(placement))


def test_heaviest_ops_types_and_largest_transfers():
    ops = [
        Op("a", (3.0, 1.0), type="MatMul", outputs=(10, 4)),
        Op("b", 1.0, ("a:0", "a:1"), type="Add"),
        Op("c", 0.0, ("^a",), type="NoOp"),
    ]
    problem, schedule = placed(build_problem(ops, Machine(bandwidth=2.0, latency=0.5)), [0, 1, 1])
    assert heaviest_ops(schedule, 5) == [0, 1]
    assert heaviest_ops(schedule, 1) == [0]
    assert heaviest_types(problem, schedule, 1) == [("MatMul", 1, 3.0)]
    assert heaviest_types(problem, schedule, 5) == [("MatMul", 1, 3.0), ("Add", 1, 1.0)]
    # 10 bytes take 5 s; 4 bytes wait for the link meanwhile; the control edge has none.
    tensors = schedule.transfers.tensor[largest_transfers(schedule, 5)].tolist()
    assert [tensor_name(problem, tensor) for tensor in tensors] == ["a:0", "a:1"]
    assert tensor_name(problem, 2) == "^a"
    assert queued_seconds(problem, schedule).tolist() == [0.0, 5.0, 7.0]


def test_each_op_on_the_cpu_has_one_reason():
    ops = [
        Op("decode", (1.0, INF), type="DecodeJpeg", colocation=0),
        Op("tied", (2.0, 1.0), colocation=0),
        Op("pinned", (1.0, 1.0), pin=0),
        Op("free", (3.0, 1.0), type="Mul"),
        Op("also", (4.0, 2.0), type="Mul"),
        Op("there", (9.0, 1.0)),
    ]
    assert ops_on_cpu(*placed(build_problem(ops), [0, 0, 0, 0, 0, 1])) == [
        OnCpu(NO_KERNEL, 1, [("DecodeJpeg", 1)], 1.0, INF, "decode"),
        OnCpu(PINNED, 1, [("Op", 1)], 1.0, 1.0, "pinned"),
        OnCpu(TIED, 1, [("Op", 1)], 2.0, 1.0, "tied"),
        OnCpu(CHOSEN, 2, [("Mul", 2)], 7.0, 3.0, "also"),
    ]
    no_gpu = build_problem(ops[3:5], Machine(types=["CPU", "CPU"]))
    assert ops_on_cpu(*placed(no_gpu, [0, 0])) == []
