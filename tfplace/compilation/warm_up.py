"""Compiles what a search needs, by searching on a tiny problem of the same kind.

The machine code stays in the cache folder of graphs.host.compiled. TensorFlow is not imported. As a
child (`start_child`) it takes a kind of problems, and parts, as arguments.
"""

import functools
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.executor_model import ExecutorModel
from graphs.host.parent import connect_to_parent
from graphs.op_graph import SHAPE_DIMS, IntArray, OpGraph
from graphs.problem import Problem
from tfplace.algorithms.annealing.local_search import LocalSearch
from tfplace.algorithms.annealing.policy import Multilevel
from tfplace.algorithms.placers.earliest_start import m_etf
from tfplace.algorithms.placers.heft import heft
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.compilation.ahead import (
    ANNEALING,
    KINDS,
    PARTS,
    RULES_1_TO_6,
    STARTS_AND_BOUNDS,
    is_compiled,
    note_compiled,
)
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Policy
from tfplace.simulation.evaluator import SimulatingEvaluator

NUM_OPS = 24
NUM_TRIALS = 300
"""So many trials use every compiled function at least once, and take a hundredth of a second."""


def warm_up(kind: str, parts: Sequence[str] = PARTS) -> None:
    """Compiles parts of what searches on a kind of problem need; not what is there already."""
    problem = tiny_problem(kind)
    for part in parts:
        if not is_compiled(kind, part):
            _COMPILE[part](problem)
            note_compiled(kind, part)


def warm_up_all() -> None:
    """For all kinds; what an installation ends with."""
    for kind in KINDS:
        warm_up(kind)


def _compile_annealing(problem: Problem) -> None:
    start = np.zeros((1, NUM_OPS), dtype=np.int32)
    evaluator = SimulatingEvaluator(problem, 1)
    for make in (LocalSearch, Multilevel):
        stage = Stage("annealing", functools.partial(_begun, make, problem, start))
        search([stage], evaluator, Limits(math.inf, NUM_TRIALS))


def _begun(
    make: Callable[..., Policy], problem: Problem, start: IntArray, best: IntArray | None
) -> Policy:
    return make(problem, 0, [lambda: start])


def _compile_starts_and_bounds(problem: Problem) -> None:
    m_etf(problem, 0)
    heft(problem, 0)
    lower_bound_seconds(problem)


_COMPILE = {ANNEALING: _compile_annealing, STARTS_AND_BOUNDS: _compile_starts_and_bounds}


def tiny_problem(kind: str) -> Problem:
    """A CPU and two GPUs, and ops that use the one before and one further back."""
    names = (("/device:CPU:0", "CPU"), ("/device:GPU:0", "GPU"), ("/device:GPU:1", "GPU"))
    devices, apart = [Device(*name, 10**6, 1) for name in names], 1.0 - np.eye(len(names))
    with np.errstate(divide="ignore"):
        cluster = Cluster("tiny", "duplex", devices, apart / 10, 100.0 / apart)
    ops = np.arange(NUM_OPS, dtype=np.int32)
    uses = sorted({(tensor, op) for op in range(1, NUM_OPS) for tensor in (op - 1, op // 2)})
    use_tensor, use_op = np.array(uses, dtype=np.int32).T.copy()
    size = np.full(NUM_OPS, 8, dtype=np.int64)
    graph = OpGraph(
        op_names=[f"op{op}" for op in ops],
        op_types=["MatMul"] * NUM_OPS,
        tensor_producer=ops,
        tensor_output=np.zeros(NUM_OPS, dtype=np.int32),
        tensor_bytes=size,
        tensor_alloc_bytes=size,
        tensor_shares=np.full(NUM_OPS, -1, dtype=np.int32),
        tensor_takes_over=np.zeros(NUM_OPS, dtype=bool),
        tensor_shape=np.full((NUM_OPS, SHAPE_DIMS), -1, dtype=np.int32),
        use_tensor=use_tensor,
        use_op=use_op,
        op_persistent_bytes=size,
        op_temp_bytes=size,
        colocation_group=np.full(NUM_OPS, -1, dtype=np.int32),
    )
    return Problem(
        graph=graph,
        op_seconds=np.outer(1.0 + ops % 3, [10.0, 1.0, 1.0]),
        pinned_device=np.full(NUM_OPS, -1, dtype=np.int32),
        device_names=cluster.device_names,
        device_types=[device.type for device in cluster.devices],
        device_slots=np.ones(cluster.num_devices, dtype=np.int32),
        device_memory_bytes=np.full(cluster.num_devices, 10**6, dtype=np.int64),
        link_latency=cluster.link_latency,
        link_bytes_per_second=cluster.link_bytes_per_second,
        link_channels=cluster.link_channels(),
        memory_reserve=0.0,
        communication=cluster.communication,
        executor=None if kind == RULES_1_TO_6 else _executor(cluster.num_devices),
    )


def _executor(num_devices: int) -> ExecutorModel:
    apart = ~np.eye(num_devices, dtype=bool)
    work = apart[..., None] * np.array([0.01, 0.001])
    orders = np.stack([np.arange(NUM_OPS), np.arange(NUM_OPS)]).astype(np.int32)
    slowdown = np.full((NUM_OPS, num_devices), 0.1)
    return ExecutorModel(work, work, np.zeros(NUM_OPS, dtype=bool), slowdown, apart, orders)


def main(argv: Sequence[str]) -> None:
    """Compiles the kind and the parts that are named behind the pipe."""
    kind, *parts = connect_to_parent(argv)[1]
    warm_up(kind, parts)


if __name__ == "__main__":
    main(sys.argv[1:])
