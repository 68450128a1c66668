"""All placements of a small problem, and random problems small enough for that."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from graphs.cluster import COMMUNICATION_RULES
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem, with_executor
from tfplace.grouping.quotient import colocation_units, group_allowed
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulator import Simulator

MAX_OPS, MAX_DEVICES = 6, 3


def all_placements(problem: Problem) -> IntArray:
    """i4[B, N]: every placement that kernels, pins and colocation allow."""
    units = colocation_units(problem.graph)
    allowed = group_allowed(problem.allowed(), units)
    choices = list(itertools.product(*(np.flatnonzero(row) for row in allowed)))
    placements = np.array(choices, dtype=np.int32).reshape(len(choices), units.num_groups)
    return placements[:, units.group_of_op]


def optimum_seconds(problem: Problem) -> float:
    """The least makespan of all placements that fit; inf where none does."""
    makespans, peaks = Simulator(problem, num_threads=1).run_many(all_placements(problem))
    fitting = np.all(peaks <= problem.usable_bytes(), axis=1)
    return float(makespans[fitting].min(initial=np.inf))


def some_schedules(problem: Problem, count: int = 12) -> list[Schedule]:
    """The schedules of the fastest placement and of others spread evenly over all of them."""
    placements = all_placements(problem)
    simulator = Simulator(problem, num_threads=1)
    makespans, _ = simulator.run_many(placements)
    chosen = {int(makespans.argmin()), *range(0, len(placements), -(-len(placements) // count))}
    return [simulator.schedule(placements[index]) for index in sorted(chosen)]


@st.composite
def small_problems(draw: st.DrawFn, may_be_stuck: bool = True) -> Problem:
    """Problems with every feature that a bound has to respect.

    Ops may lack kernels, be pinned or colocated; memory may be short; devices differ in speed,
    slots and links; any channel rule and executor. Few distinct numbers, so that times tie.

    Args:
      draw: given by hypothesis.
      may_be_stuck: whether all placements may be forbidden.
    """
    size = draw(st.integers(1, MAX_DEVICES))
    seconds = st.sampled_from([0.0, 0.25, 1.0, 3.0])
    kernel = st.one_of(seconds, st.just(np.inf)) if may_be_stuck else seconds
    speeds = st.one_of(seconds, st.tuples(*[kernel] * (size - 1), seconds))
    ops: list[Op] = []
    available: list[str] = []
    for index in range(draw(st.integers(1, MAX_OPS))):
        inputs = st.lists(st.sampled_from(available or [""]), max_size=3, unique=True)
        outputs = draw(st.lists(st.sampled_from([0, 1, 2, 7]), max_size=2))
        ops.append(
            Op(
                f"op{index}",
                draw(speeds),
                draw(inputs) if available else (),
                outputs,
                persistent=draw(st.sampled_from([0, 0, 4])),
                temp=draw(st.sampled_from([0, 0, 3])),
                colocation=draw(st.sampled_from([-1, -1, -1, 0, 1])),
                pin=draw(st.sampled_from([-1] * 7 + [0])) if may_be_stuck else -1,
            )
        )
        available += [f"op{index}:{output}" for output in range(len(outputs))] + [f"^op{index}"]
    machine = Machine(
        size,
        latency=draw(st.sampled_from([0.0, 0.1, 0.5])),
        bandwidth=_links(draw, size),
        slots=draw(st.lists(st.integers(1, 2), min_size=size, max_size=size)),
        memory=draw(st.sampled_from([10**9, 10**9, 20, 8])),
        memory_reserve=draw(st.sampled_from([0.0, 0.1])),
        communication=draw(st.sampled_from(COMMUNICATION_RULES)),
    )
    problem = build_problem(ops, machine)
    if not draw(st.booleans()):
        return problem
    ends = st.tuples(st.sampled_from([0.0, 0.05]), st.sampled_from([0.0, 0.01]))
    slowdown = st.none() | st.just([0.5] * len(ops))
    return with_executor(problem, draw(ends), draw(ends), slowdown=draw(slowdown))


def _links(draw: st.DrawFn, size: int) -> list[list[float]]:
    """[D, D] bytes per second, slow enough that what an end works is part of every transfer."""
    rate = st.sampled_from([1.0, 2.0, 10.0])
    return [[draw(rate) for _ in range(size)] for _ in range(size)]
