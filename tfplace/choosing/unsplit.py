"""What was found for the unsplit step, as a placement of the split one: all shards alike."""

from __future__ import annotations

import numpy as np

from graphs.names import original_name
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import legal, working_devices


def for_all_shards(problem: Problem, unsplit: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: every copy of an op where the op itself lies.

    What only the split step has lies with the op that it is named after (`a/b/summed` with `a/b`),
    or else with its first input.

    Args:
      problem: of the split step, N ops.
      unsplit: of the same step as it came.
      device_of_op: a placement of that.
    """
    known = dict(zip(unsplit.graph.op_names, device_of_op.tolist(), strict=True))
    wanted = np.array([_device(name, known) for name in problem.graph.op_names], dtype=np.int32)
    graph = problem.graph
    source = graph.tensor_producer[graph.use_tensor]
    for use in np.argsort(graph.use_op, kind="stable").tolist():
        if wanted[graph.use_op[use]] < 0:
            wanted[graph.use_op[use]] = wanted[source[use]]
    wanted[wanted < 0] = working_devices(problem)[0]
    return legal(problem, wanted)


def _device(name: str, known: dict[str, int]) -> int:
    name = original_name(name)
    while name and name not in known:
        name = name.rpartition("/")[0]
    return known.get(name, -1)
