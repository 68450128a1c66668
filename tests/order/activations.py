"""Predicted: what shards one after another on one device hold, by `tfplace simulate` alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from graphs.op_graph import LongArray
from graphs.problem import Problem
from graphs.problem_file import read_problem
from tests.order.running import asked, graph
from tfplace.simulation.schedule import HeldIntervals, held_intervals
from tfplace.simulation.simulator import Simulator

SHARDS = 8
UPDATES = ("ResourceApply", "ResourceSparseApply", "AssignSubVariableOp", "AssignAddVariableOp")
SUMS = ("AddN", "AddV2", "Identity", "Reshape")
MB = 1e6


def made() -> dict[str, Any]:
    """The note, columns and rows of the result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = graph(folder, "transformer")
        ways = (("1", "none"), (f"{SHARDS}", "none"), (f"{SHARDS}", "edges"))
        rows = [_row(folder, model, *way) for way in ways]
    first = rows[0]
    for row in rows:
        row.append(100.0 * (row[2] / first[2] - 1.0))
    names = ("step, ms", "variables, MB", "gradients, MB", "activations, MB", "all but variables")
    return {
        "note": "transformer, batch 32, all on one K80 of k80x2, each peak by itself; "
        "tfplace simulate transformer.pb --cluster=k80x2 --shards=8 --order=edges",
        "columns": [
            {"name": "shards", "align": "right"}, {"name": "order"},
            *({"name": name, "format": ",.0f"} for name in names),
            {"name": "step, %", "format": "+.1f"},
        ],
        "rows": rows,
    }  # fmt: skip


def _row(folder: Path, model: str, shards: str, order: str) -> list[Any]:
    dump = folder / "problem.npz"
    words = (f"--shards={shards}", f"--order={order}", f"--dump_problem={dump}")
    said = asked("simulate", model, "--cluster=k80x2", *words)
    problem, placement = read_problem(str(dump))
    assert len(np.unique(placement)) == 1
    schedule = Simulator(problem, num_threads=1).schedule(placement)
    held = held_intervals(problem, schedule)
    is_gradient = gradients(problem)[held.op]
    everything = np.ones(len(held.op), dtype=bool)
    persistent = int(problem.graph.op_persistent_bytes.sum())
    peaks = [most(held, chosen) / MB for chosen in (is_gradient, ~is_gradient, everything)]
    assert max(said["peak_bytes"].values()) == most(held, everything) + persistent
    return [shards, order, 1e3 * said["step_seconds"], persistent / MB, *peaks]


def gradients(problem: Problem) -> np.ndarray:
    """bool[N]: ops whose output is added to others of its size until a variable is updated."""
    graph = problem.graph
    producer, size = graph.tensor_producer[graph.use_tensor], graph.tensor_bytes[graph.use_tensor]
    largest = np.zeros(graph.num_ops)
    np.maximum.at(largest, graph.use_op, size)
    is_gradient = np.zeros(graph.num_ops, dtype=bool)
    front = [op for op, kind in enumerate(graph.op_types) if kind.startswith(UPDATES)]
    while front:
        op = front.pop()
        uses = np.flatnonzero((graph.use_op == op) & (size == largest[op]) & (size > 0))
        for before in producer[uses].tolist():
            if not is_gradient[before]:
                is_gradient[before] = True
                front += [before] if graph.op_types[before] in SUMS else []
    return is_gradient


def most(held: HeldIntervals, chosen: np.ndarray) -> int:
    """The most bytes that the chosen intervals hold at a time."""
    seconds = np.concatenate([held.start[chosen], held.end[chosen]])
    change: LongArray = np.concatenate([held.bytes[chosen], -held.bytes[chosen]])
    instants, instant_of_change = np.unique(seconds, return_inverse=True)
    net = np.zeros(len(instants), dtype=np.int64)
    np.add.at(net, instant_of_change, change)
    return int(np.cumsum(net).max(initial=0))
