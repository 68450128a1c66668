"""Where the papers' experts put a benchmark graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from graphs.zoo import expert_placement as expert_gpus


def expert_placement(graph_def: Any, problem: Problem) -> IntArray | None:
    """i4[N] from the marks that `tfplace graph` leaves on ops; None where there are none.

    A cluster without GPUs has its CPUs taken for them.

    Args:
      graph_def: the flat graph.
      problem: its op graph on a cluster.
    """
    gpus = [d for d, kind in enumerate(problem.device_types) if kind == "GPU"]
    gpus = gpus or list(range(problem.num_devices))
    gpu_of_op = expert_gpus(graph_def, problem.graph.op_names, len(gpus))
    if gpu_of_op is None:
        return None
    chosen = [gpu_of_op.get(name) for name in problem.graph.op_names]
    wanted = np.array([-1 if gpu is None else gpus[gpu] for gpu in chosen], dtype=np.int32)
    return completed(wanted, problem.allowed(), problem.graph.colocation_group)


def completed(wanted: IntArray, allowed: np.ndarray, colocation_group: IntArray) -> IntArray:
    """i4[N]: a partial placement made whole.

    Ops of a colocation group follow the first that has a device; who has none, or no kernel
    there, goes to the first device that it may lie on (the CPU comes first in a cluster).

    Args:
      wanted: i4[N], -1 where nothing is said.
      allowed: bool[N, D].
      colocation_group: i4[N].
    """
    result = np.array(wanted)
    said = np.flatnonzero((wanted >= 0) & (colocation_group >= 0))
    of_group = np.full(int(colocation_group.max(initial=-1)) + 1, -1, dtype=np.int32)
    of_group[colocation_group[said[::-1]]] = wanted[said[::-1]]
    member = colocation_group >= 0
    result[member] = of_group[colocation_group[member]]
    possible = (result >= 0) & allowed[np.arange(len(result)), np.maximum(result, 0)]
    return np.where(possible, result, np.argmax(allowed, axis=1)).astype(np.int32)
