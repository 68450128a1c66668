"""The optimum of a small problem by trying everything, and random problems with constraints."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from graphs.problem import Problem
from tests.builders import random_executor, random_problem
from tfplace.grouping.quotient import colocation_units, group_allowed
from tfplace.simulation.simulator import Simulator


def optimum_seconds(problem: Problem) -> float:
    """The least makespan of all placements that fit; inf where none does."""
    units = colocation_units(problem.graph)
    allowed = group_allowed(problem.allowed(), units)
    choices = list(itertools.product(*(np.flatnonzero(row) for row in allowed)))
    if not choices:
        return float("inf")
    placements = np.array(choices, dtype=np.int32)[:, units.group_of_op]
    makespans, peaks = Simulator(problem, num_threads=1).run_many(placements)
    fitting = np.all(peaks <= problem.usable_bytes(), axis=1)
    return float(makespans[fitting].min(initial=np.inf))


def constrained_problem(rng: np.random.Generator, max_ops: int = 6) -> Problem:
    """A random problem with missing kernels, pins, colocation, little memory, an executor."""
    problem = random_problem(rng, max_ops)
    if rng.random() < 0.2:
        problem = random_executor(rng, problem)
    size, num_devices = problem.op_seconds.shape
    seconds = problem.op_seconds.copy()
    if rng.random() < 0.5:
        seconds[:] = seconds[:, :1]  # equal devices
    missing = rng.random(seconds.shape) < 0.2 * rng.integers(0, 2)
    missing[np.arange(size), rng.integers(0, num_devices, size)] = False
    seconds[missing] = np.inf
    pinned = np.where(rng.random(size) < 0.1, rng.integers(0, num_devices, size), -1)
    together = np.where(rng.random(size) < 0.4, rng.integers(0, 3, size), -1)
    memory = np.full(num_devices, 10**9)
    if rng.random() < 0.6:
        memory = rng.integers(5, 60, num_devices)
    return dataclasses.replace(
        problem,
        graph=dataclasses.replace(problem.graph, colocation_group=together.astype(np.int32)),
        op_seconds=seconds,
        pinned_device=pinned.astype(np.int32),
        device_memory_bytes=memory.astype(np.int64),
        memory_reserve=float(rng.choice([0.0, 0.1])),
    )
