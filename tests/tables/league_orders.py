"""Pipelines whose placement is given and whose order is searched: zero bubble's task (sail-sg).

S stages, M micro-batches; each has a forward (F), the gradient of its input (B) and that of the
weights (W) on each stage. An F holds two units of memory on its stage; B gives one back, W the
other. What a stage hands on is there a fixed time later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.problem import Infeasible, Problem
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.scheduling.edges import order_edges, with_order_edges
from tfplace.choosing.scheduling.list_schedules import Ordered, ordered
from tfplace.simulation.simulator import Simulator

KINDS = "FBW"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is scheduled; times in the rivals' whole units.

    Attributes:
      seconds: of F, B and W.
      hop: until the next stage has what a stage hands on.
      memory: units of each stage; 1F1B needs 2 * stages.
    """

    stages: int
    batches: int
    seconds: tuple[int, int, int]
    hop: int
    memory: int


def problem_of(case: Case, by_stage: bool = False) -> tuple[Problem, np.ndarray]:
    """The problem, and the stage of each op i4[N].

    Args:
      by_stage: its makespan is the longest stage's time, from its own first start on, and
        `ramp(case)` besides: behind each stage waits what the last one begins later than it.
    """
    forward, backward, weights = case.seconds
    ops = []
    for m in range(case.batches):
        for s in range(case.stages):
            above = (f"F{s - 1}/shard_{m}:0",) if s else ()
            ops.append(Op(f"F{s}/shard_{m}", forward, above, (0, 1, 1), pin=s))
        for s in reversed(range(case.stages)):
            below = (f"B{s + 1}/shard_{m}:0",) if s + 1 < case.stages else ()
            ops.append(Op(f"B{s}/shard_{m}", backward, (f"F{s}/shard_{m}:1", *below), pin=s))
            made = (f"F{s}/shard_{m}:2", f"B{s}/shard_{m}:0")
            ops.append(Op(f"W{s}/shard_{m}", weights, made, pin=s))
    stage = [int(op.name[1:].partition("/")[0]) for op in ops]
    size = case.stages + by_stage
    for s in range(case.stages if by_stage else 0):
        behind = [f"{kind}{s}/shard_{m}:0" for m in range(case.batches) for kind in "BW"]
        wait = (case.stages - 1 - s) * (forward + case.hop)
        ops.append(Op(f"after{s}", wait, behind, (), pin=case.stages))
        stage.append(case.stages)
    hops = np.full((size, size), float(case.hop))
    hops[case.stages :, :] = hops[:, case.stages :] = 0.0
    np.fill_diagonal(hops, 0.0)
    slots = [1] * case.stages + [case.stages] * by_stage
    machine = Machine(size, hops.tolist(), 1e9, slots, memory=case.memory, types=["GPU"] * size)
    return build_problem(ops, machine), np.array(stage, dtype=np.int32)


def ramp(case: Case) -> int:
    """Seconds after which the last stage can begin."""
    return (case.stages - 1) * (case.seconds[0] + case.hop)


def in_their_order(case: Case, ends: Sequence[float]) -> float:
    """Seconds of the whole step in a rival's order under our simulator; inf above the memory.

    Args:
      ends: when each op ends, by kind, stage and micro-batch.
    """
    problem, stage = problem_of(case)
    number = {name: i for i, name in enumerate(problem.graph.op_names)}
    turn = np.empty(problem.num_ops)
    for at, end in enumerate(ends):
        kind, rest = divmod(at, case.stages * case.batches)
        s, m = divmod(rest, case.batches)
        turn[number[f"{KINDS[kind]}{s}/shard_{m}"]] = end
    before: list[int] = []
    after: list[int] = []
    for s in range(case.stages):
        row = np.flatnonzero(stage == s)
        row = row[np.argsort(turn[row], kind="stable")].tolist()
        before += row[:-1]
        after += row[1:]
    edged = with_order_edges(problem, order_edges(before, after))
    makespan, peaks = Simulator(edged.problem, 1).run(edged.renumbered(stage))
    return makespan if (peaks <= problem.usable_bytes()).all() else float("inf")


def in_our_order(case: Case) -> tuple[float, float]:
    """Seconds of the whole step and of the longest stage, each in the best order that was found.

    Both are inf above the memory. tfplace orders twice, for either; of the stage's time the less
    of both counts.
    """
    step = _found(case, by_stage=False)
    if isinstance(step.outcome, Infeasible):
        return float("inf"), float("inf")
    edged = step.edged()
    schedule = Simulator(edged.problem, 1).schedule(edged.renumbered(step.device_of_op))
    stages = [schedule.device_of_op == s for s in range(case.stages)]
    longest = max(schedule.op_end[here].max() - schedule.op_start[here].min() for here in stages)
    other = _found(case, by_stage=True).outcome
    if not isinstance(other, Infeasible):
        longest = min(longest, other.step_seconds - ramp(case))
    return step.outcome.step_seconds, float(longest)


def _found(case: Case, by_stage: bool) -> Ordered:
    return ordered(*problem_of(case, by_stage))


def least_seconds(case: Case) -> int:
    """No step is shorter: the last stage's first input has to come, then it has all its work."""
    return case.batches * sum(case.seconds) + ramp(case)
