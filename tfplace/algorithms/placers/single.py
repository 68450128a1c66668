"""All ops on one device: the placement that every other one has to beat."""

from __future__ import annotations

import hashlib

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import distinct, fallback_order, legal

MANY_DEVICES = 16
"""Beyond, one device of each kind stands for those that are alike."""


def single_devices(problem: Problem, seed: int = 0) -> IntArray:
    """Each device in turn gets all ops, but those that can't lie there.

    Ops without a kernel there, or pinned elsewhere, go to the CPU of the same task, as
    TensorFlow's soft placement has it. Memory is not made to fit: "one GPU is too small" is an
    answer.

    Returns:
      i4[B, N], B <= D, in device order; equal placements come once, and of more than MANY_DEVICES
      those of alike devices, too.
    """
    devices = list(range(problem.num_devices))
    if problem.num_devices > MANY_DEVICES and not (problem.pinned_device >= 0).any():
        devices = sorted({_kind(problem, device): device for device in devices[::-1]}.values())
    placements = [
        legal(problem, np.full(problem.num_ops, device, dtype=np.int32)) for device in devices
    ]
    return distinct(placements)


def _kind(problem: Problem, device: int) -> tuple[object, ...]:
    """What a step on one device, and on the CPU beside it, depends on."""
    nearest = [int(other) for other in fallback_order(problem)[device, :2]]
    return (
        hashlib.sha256(problem.op_seconds[:, nearest].tobytes()).digest(),
        *(problem.device_types[each] for each in nearest),
        *(int(problem.device_slots[each]) for each in nearest),
        *(int(problem.device_memory_bytes[each]) for each in nearest),
        float(problem.link_bytes_per_second[nearest[0], nearest[1]]),
        float(problem.link_latency[nearest[0], nearest[1]]),
    )
