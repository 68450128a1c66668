"""Heaviest ops, transfers, reasons for the CPU, groups."""

import numpy as np

from tests.builders import Machine, Op, build_problem
from tfplace.report.explaining.group_graph import group_graph, scope_label, scope_of_op
from tfplace.report.explaining.hot_spots import (
    HeavyOp,
    HeavyType,
    LargeTransfer,
    heaviest_ops,
    heaviest_types,
    largest_transfers,
)
from tfplace.report.explaining.on_cpu import CHOSEN, NO_KERNEL, PINNED, TIED, ops_on_cpu
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
    found = placed(build_problem(ops, Machine(bandwidth=2.0, latency=0.5)), [0, 1, 1])
    assert heaviest_ops(*found, 5) == [
        HeavyOp("a", "MatMul", 0, 3.0, 1.0),
        HeavyOp("b", "Add", 1, 1.0, 1.0),
    ]
    assert heaviest_types(*found, 1) == [HeavyType("MatMul", 1, 3.0)]
    # 10 bytes take 5 s and half a second; the next waits for the link meanwhile.
    assert largest_transfers(*found, 5) == [
        LargeTransfer("a:0", 0, 1, 10, 5.5, 0.0),
        LargeTransfer("a:1", 0, 1, 4, 2.5, 5.0),
    ]


def test_each_op_on_the_cpu_has_one_reason():
    ops = [
        Op("decode", (1.0, INF), type="DecodeJpeg", colocation=0),
        Op("tied", (2.0, 1.0), colocation=0),
        Op("pinned", (1.0, 1.0), pin=0),
        Op("free", (3.0, 1.0), type="Mul"),
        Op("also", (4.0, 2.0), type="Mul"),
        Op("there", (9.0, 1.0)),
    ]
    found = ops_on_cpu(*placed(build_problem(ops), [0, 0, 0, 0, 0, 1]))
    assert [(f.reason, f.num_ops, f.types, f.seconds, f.gpu_seconds, f.example) for f in found] == [
        (NO_KERNEL, 1, [("DecodeJpeg", 1)], 1.0, INF, "decode"),
        (PINNED, 1, [("Op", 1)], 1.0, 1.0, "pinned"),
        (TIED, 1, [("Op", 1)], 2.0, 1.0, "tied"),
        (CHOSEN, 2, [("Mul", 2)], 7.0, 3.0, "also"),
    ]
    no_gpu = build_problem(ops[3:5], Machine(types=["CPU", "CPU"]))
    assert ops_on_cpu(*placed(no_gpu, [0, 0])) == []


def test_a_small_graph_is_shown_op_by_op():
    ops = [Op("x/a", outputs=(7,)), Op("x/b", inputs=("x/a:0",), outputs=(2,)), Op("c")]
    graph = group_graph(*placed(build_problem(ops), [0, 1, 0]))
    assert [(g.label, g.device, g.num_ops, g.seconds) for g in graph.groups] == [
        ("x/a", 0, 1, 1.0),
        ("c", 0, 1, 1.0),
        ("x/b", 1, 1, 1.0),
    ]
    assert [(e.source, e.target, e.bytes) for e in graph.edges] == [(0, 2, 7)]
    assert (graph.by, graph.num_edges) == ("unit", 1)


def test_a_large_graph_is_shown_by_scope_and_device_and_small_ones_together():
    names = [f"layer{layer}/step{step}/op" for layer in range(4) for step in range(10)]
    ops = [Op(name, 1.0 if "step0" not in name else 1e-9) for name in names]
    placement = [number % 2 for number in range(40)]
    graph = group_graph(*placed(build_problem([*ops, Op("loss", 1e-6)]), [*placement, 1]), 20)
    # Ten steps of a layer are ten groups: one layer can be opened, 3 x 2 more are closed.
    assert graph.by == "scope" and len(graph.groups) == 6 + 9 + 2
    small = [g for g in graph.groups if not g.label]
    assert [(g.device, g.num_ops) for g in small] == [(0, 1), (1, 1)]
    assert graph.groups[-2:] == small
    assert sum(g.num_ops for g in graph.groups) == 41
    assert {g.label.count("/") for g in graph.groups} == {0, 1}


def test_flat_names_are_grouped_by_what_they_exchange():
    ops = [Op(f"op{n}", inputs=(f"op{n - 1}:0",) if n else ()) for n in range(60)]
    graph = group_graph(*placed(build_problem(ops), [n // 30 for n in range(60)]), 20)
    assert graph.by == "cut" and 2 <= len(graph.groups) <= 20
    assert sum(g.num_ops for g in graph.groups) == 60


def test_scopes_are_opened_by_time_until_there_is_no_room():
    names = [name.split("/") for name in ("a/x/1", "a/y/1", "b/x/1", "b/1", "c")]
    seconds, device = np.array([3.0, 3.0, 2.0, 1.0, 1.0]), np.array([0, 0, 0, 1, 0])
    assert scope_of_op(names, seconds, device, 2) == ["model"] * 5
    assert scope_of_op(names, seconds, device, 4) == ["a", "a", "b/x", "b", "model"]
    assert scope_of_op(names, seconds, device, 5) == ["a/x", "a/y", "b/x", "b", "model"]


def test_a_group_is_named_after_the_scope_of_most_of_its_time():
    assert scope_label([("a/b/c", 1.0)]) == "a/b/c"
    assert scope_label([("a/b/c", 2.0), ("a/b/d", 2.0), ("x", 1.0)]) == "a/b"
    assert scope_label([("a/b/c", 2.0), ("a/d/d", 1.0), ("a/e", 1.5)]) == "a"
    assert scope_label([("a", 1.0), ("b", 1.0), ("c", 1.5)]) == "c, …"
