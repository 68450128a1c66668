"""A training step on two devices that are not what they are taken to be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tests.builders import Machine, unrolled_lstm, with_executor
from tfplace.choosing.forward_model import ForwardModel


def lstm(num_devices: int = 2, has_executor: bool = False) -> Problem:
    """270 ops of an unrolled LSTM, as on workers of one host."""
    machine = Machine(num_devices, latency=1e-4, bandwidth=2e9, types=["CPU"] * num_devices)
    problem = unrolled_lstm(machine=machine)
    if not has_executor:
        return problem
    slowdown = np.full(problem.num_ops, 0.1).tolist()
    return with_executor(problem, (3e-5, 1e-10), (3e-5, 1e-10), slowdown=slowdown)


def theta_of(model: ForwardModel, values: Mapping[str, float]) -> FloatArray:
    """θ of a machine: {number: its value}; the others as taken."""
    names = [number.name for number in model.numbers]
    assert set(values) <= set(names), names
    theta = model.as_taken
    for name, value in values.items():
        number = model.numbers[names.index(name)]
        unit = number.unit_seconds
        theta[names.index(name)] = value / unit if unit else np.log(value)
    return theta


def placements_of(problem: Problem, count: int, seed: int = 0) -> IntArray:
    """i4[count, N]: one device each, then random pieces of the order, that keep colocation."""
    rng = np.random.default_rng(seed)
    group = problem.graph.colocation_group
    rows = []
    for index in range(count):
        cuts = np.sort(rng.integers(0, problem.num_ops, 2 ** rng.integers(0, 6)))
        row = np.searchsorted(cuts, np.arange(problem.num_ops)) % problem.num_devices
        row = np.full(problem.num_ops, index) if index < problem.num_devices else row
        for number in range(int(group.max()) + 1):
            row[group == number] = row[group == number][0]
        rows.append(row)
    return np.array(rows, dtype=np.int32)
