"""All ops on one device: the placement that every other one has to beat."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from tfplace.algorithms.placers.legal import legal
from tfplace.algorithms.placers.one_shot import OneShot


class Single(OneShot):
    """One proposal for each device: all ops there, but those that can't be.

    Ops without a kernel there, or pinned elsewhere, go to the CPU of the same task, as
    TensorFlow's soft placement has it. Memory is not made to fit: "one GPU is too small" is an
    answer.
    """

    def place(self) -> IntArray:
        """i4[B, N], B <= D: equal placements are proposed once, in device order."""
        problem, allowed = self.problem, self.problem.allowed()
        placements = [
            legal(problem, np.full(problem.num_ops, device, dtype=np.int32), allowed)
            for device in range(problem.num_devices)
        ]
        _, first = np.unique(np.stack(placements), axis=0, return_index=True)
        return np.stack([placements[index] for index in np.sort(first)])
