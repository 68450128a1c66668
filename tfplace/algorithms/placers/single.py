"""All ops on one device: the placement that every other one has to beat."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import distinct, legal


def single_devices(problem: Problem, seed: int = 0) -> IntArray:
    """Each device in turn gets all ops, but those that can't lie there.

    Ops without a kernel there, or pinned elsewhere, go to the CPU of the same task, as
    TensorFlow's soft placement has it. Memory is not made to fit: "one GPU is too small" is an
    answer.

    Returns:
      i4[B, N], B <= D, in device order; equal placements come once.
    """
    placements = [
        legal(problem, np.full(problem.num_ops, device, dtype=np.int32))
        for device in range(problem.num_devices)
    ]
    return distinct(placements)
