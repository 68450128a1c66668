"""Makes a placement fit: what is made again or waits on the host, as the simulator judges it."""

import dataclasses
import itertools
import math
import time

import numpy as np

from graphs.by_key import by_key
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from rewrite.memory.recompute import AGAIN
from tfplace.choosing.memory.rematerialize import (
    ORIGINAL,
    CopyPlan,
    MayChange,
    NoRoomError,
    Weights,
    host_of,
    rematerialized,
)
from tfplace.choosing.scheduling import edges
from tfplace.choosing.scheduling.list_schedules import by_memory
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulated import Simulated, simulated

# A problem in which some ops run a second time: what a plan is to the simulator.


def with_copies(problem: Problem, plan: CopyPlan) -> edges.EdgedProblem:
    """Adds the copies of a plan, each behind what it waits for.

    Returns:
      The problem; its `op_at` numbers the copies from N on.
    """
    graph, num_ops, num_tensors = problem.graph, problem.num_ops, problem.graph.num_tensors
    wanted = {each.op for each in plan.copies}
    producer: list[int] = graph.tensor_producer.tolist()
    outputs = by_key(
        (op, tensor)
        for tensor, op in enumerate(producer)
        if op in wanted and graph.tensor_output[tensor] >= 0
    )
    of_copy: dict[tuple[int, int], int] = {}  # (copy, tensor of its op): the copy's own
    source: list[int] = []
    made_by: list[int] = []
    for number, copy in enumerate(plan.copies):
        for tensor in outputs.get(copy.op, ()) if copy.tensor < 0 else (copy.tensor,):
            of_copy[number, tensor] = num_tensors + len(source)
            source.append(tensor)
            made_by.append(num_ops + number)
    tensor_at = np.array([*range(num_tensors), *source], dtype=np.int64)
    tensors = {name: getattr(graph, name)[tensor_at] for name in edges.OF_TENSOR}
    tensors["tensor_producer"][num_tensors:] = made_by
    reads_of = {num_ops + number: copy.reads for number, copy in enumerate(plan.copies)}
    reads_of |= plan.reads

    def read_by(op: int, tensor: int) -> int:
        copy = reads_of.get(op, {}).get(tensor, ORIGINAL)
        return tensor if copy == ORIGINAL else of_copy[copy, tensor]

    shares: list[int] = tensors["tensor_shares"].tolist()
    for (number, tensor), own in of_copy.items():
        if plan.copies[number].tensor >= 0:
            shares[own], tensors["tensor_alloc_bytes"][own] = -1, graph.tensor_bytes[tensor]
        elif shares[own] == tensor or shares[own] < 0:
            shares[own] = -1
        elif producer[shares[own]] == plan.copies[number].op:
            shares[own] = of_copy[number, shares[own]]
        else:
            shares[own] = read_by(num_ops + number, shares[own])
    for tensor in range(num_tensors):
        op = producer[tensor]
        if op in plan.reads and shares[tensor] in plan.reads[op]:
            shares[tensor] = read_by(op, shares[tensor])
    tensors["tensor_shares"] = np.array(shares, dtype=np.int32)
    uses, inputs = [], dict[int, list[int]]()
    for tensor, op in zip(graph.use_tensor.tolist(), graph.use_op.tolist(), strict=True):
        uses.append((read_by(op, tensor), op))
        inputs.setdefault(op, []).append(tensor)
    for own, copy in enumerate(plan.copies, num_ops):
        reads = inputs.get(copy.op, ()) if copy.tensor < 0 else (copy.tensor,)
        uses += [(read_by(own, tensor), own) for tensor in reads]
    pairs = np.array(sorted(set(uses)), dtype=np.int32).reshape(-1, 2)
    op_at = np.array([*range(num_ops), *(each.op for each in plan.copies)], dtype=np.int32)
    persistent, groups = graph.op_persistent_bytes[op_at], graph.colocation_group[op_at]
    persistent[num_ops:], groups[num_ops:] = 0, -1
    hosts = np.array([-1] * num_ops + [each.host for each in plan.copies])
    temporary = np.where(hosts < 0, graph.op_temp_bytes[op_at], 0)
    names = [f"{graph.op_names[c.op]}/{AGAIN}/{n}" for n, c in enumerate(plan.copies)]
    copied = dataclasses.replace(
        edges.graph_with(graph, tensors),
        op_names=[*graph.op_names, *names],
        op_types=[graph.op_types[op] for op in op_at.tolist()],
        use_tensor=pairs[:, 0],
        use_op=pairs[:, 1],
        op_persistent_bytes=persistent,
        op_temp_bytes=temporary,
        colocation_group=groups,
    )
    waits = [(copy.after, own) for own, copy in enumerate(plan.copies, num_ops) if copy.after >= 0]
    order = edges.order_edges(*map(list, zip(*waits, strict=True))) if waits else edges.NO_EDGES
    whole = dataclasses.replace(edges.of_ops(problem, op_at), graph=copied)
    waiting = np.flatnonzero(hosts >= 0)
    whole.op_seconds[waiting], whole.pinned_device[waiting] = np.inf, -1
    whole.op_seconds[waiting, hosts[waiting]] = HANDED_BACK_SECONDS
    return edges.with_order_edges(whole, order)


def with_their_copies(device_of_op: IntArray, plan: CopyPlan) -> IntArray:
    """i4[N + C]: a placement with each copy beside its op, or on the host."""
    beside = device_of_op[[each.op for each in plan.copies]]
    hosts = np.array([each.host for each in plan.copies], dtype=np.int32)
    return np.concatenate([device_of_op, np.where(hosts < 0, beside, hosts)])


# Makes a placement fit: what each device drops and computes again, as the simulator judges it.

WEIGHTS = (
    *(Weights(), Weights(cost=2.0), Weights(wait=0.0)),
    *(Weights(cost=2.0, wait=0.0), Weights(size=1.5, wait=2.0)),
)
"""By which it is tried to choose what is dropped."""
NEARLY_FREE = 1.01
"""A plan that takes so much of the step without a limit is not worth another look."""
PATIENCE = 3.0
"""Times as long as wanted something is tried, until a plan is found."""
LEAST_STEPS = 5
"""So often the room between what a device has and what a step takes is halved."""
HANDED_BACK_SECONDS = 5e-6
"""What an op on the host takes that hands a tensor on: it copies nothing."""
MOST_TRIES, NEAR = 6, 0.995
"""A plan takes ops one by one, where a device may run several at once: one that doesn't fit is made
again with as much less memory as it was over, and a little. One that fits is made again knowing
what it runs again, until that gains nothing."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """A placement that fits with a plan.

    Attributes:
      plan: what runs again.
      simulated: the placement, with the copies.
      rank: i4[N + C] the sequence in which ops and copies start; None where that of rule 1 is kept.
    """

    plan: CopyPlan
    simulated: Simulated
    rank: IntArray | None = None

    @property
    def step_seconds(self) -> float:
        return self.simulated.outcome.step_seconds


def fitted(
    problem: Problem,
    device_of_op: IntArray,
    may: MayChange,
    until: float = math.inf,
    enough: float = NEARLY_FREE,
) -> Planned | None:
    """The fastest plan that was found with which a placement fits; None where none was.

    Args:
      device_of_op: i4[N].
      until: on time.monotonic; then nothing more is tried. Until a plan is found, PATIENCE times
        as long.
      enough: a plan that takes so many times as long as no plan is not worth another look.
    """
    schedules = [simulated(problem, device_of_op).known_schedule()]
    if _edges_can_say(problem):
        ranked = dataclasses.replace(problem, start_rank=by_memory(problem, schedules[0]))
        schedules.insert(0, simulated(ranked, device_of_op).known_schedule())
    best: Planned | None = None
    until_one = until + (PATIENCE - 1.0) * max(until - time.monotonic(), 0.0)
    usable = problem.usable_bytes()
    over = np.flatnonzero(np.array(schedules[0].peak_bytes) > usable).tolist()
    sends = may.send is not None and any(host_of(problem, device) >= 0 for device in over)
    ways = (dataclasses.replace(each, sends=True) for each in WEIGHTS if sends)
    for weights, schedule in itertools.product((*ways, *WEIGHTS), schedules):
        limits = np.where(np.array(schedule.peak_bytes) > usable, usable, np.inf)
        foreseen, fastest = CopyPlan(), math.inf
        for _ in range(MOST_TRIES):
            if time.monotonic() >= (until_one if best is None else until):
                return best
            try:
                planned = _planned(problem, schedule, may, weights, limits, foreseen)
            except NoRoomError:
                break
            foreseen = planned.plan
            if planned.simulated.is_feasible:
                if best is None or planned.step_seconds < best.step_seconds:
                    best = planned
                if best.step_seconds <= enough * schedule.makespan:
                    return best
                if planned.step_seconds >= fastest:
                    break
                fastest = planned.step_seconds
                continue
            peaks = np.maximum(planned.simulated.outcome.peak_bytes, 1)
            less = np.minimum(limits, usable) * usable / peaks * NEAR
            limits = np.where(peaks > usable, less, limits)
    return best


def least_fitted(
    problem: Problem, device_of_op: IntArray, may: MayChange, until: float
) -> Planned | None:
    """About the plan that holds least, of a placement i4[N] that doesn't fit; None: none is found.

    Args:
      until: on time.monotonic; then nothing more is tried.
    """
    peaks = np.array(simulated(problem, device_of_op).outcome.peak_bytes, dtype=np.float64)
    lacking = np.maximum(peaks - problem.usable_bytes(), 0.0) / (1.0 - problem.memory_reserve)
    least: Planned | None = None
    low, high = 0.0, 1.0
    for _ in range(LEAST_STEPS):
        share = (low + high) / 2.0
        memory = problem.device_memory_bytes + np.ceil(share * lacking).astype(np.int64)
        roomier = dataclasses.replace(problem, device_memory_bytes=memory)
        planned = fitted(roomier, device_of_op, may, until, enough=math.inf)
        low, high = (share, high) if planned is None else (low, share)
        least = planned or least
    return least


def _edges_can_say(problem: Problem) -> bool:
    """Whether a device's ops run one after another, so that edges can say in which sequence."""
    return problem.executor is None and not np.any(problem.device_slots > 1)


def _planned(
    problem: Problem,
    schedule: Schedule,
    may: MayChange,
    weights: Weights,
    limits: FloatArray,
    foreseen: CopyPlan,
) -> Planned:
    """A plan for each device with a limit [D], and what comes of it; NoRoomError: none is found."""
    plan = CopyPlan()
    for device in np.flatnonzero(np.isfinite(limits)).tolist():
        limit = limits[device]
        plan = rematerialized(problem, schedule, device, limit, may, weights, plan, foreseen)
    edged = with_copies(problem, plan)
    placement = edged.renumbered(with_their_copies(schedule.device_of_op, plan))
    if not _edges_can_say(problem):
        return Planned(plan, simulated(edged.problem, placement))
    rank = _sequence(schedule, plan)
    ranked = dataclasses.replace(edged.problem, start_rank=rank[edged.op_at])
    return Planned(plan, simulated(ranked, placement), rank)


def _sequence(schedule: Schedule, plan: CopyPlan) -> IntArray:
    """i4[N + C]: places of ops and copies in a schedule's sequence, each copy before its reader.

    First come, first served, a copy would stand behind what was ready before it, and be there when
    the next large tensor is.
    """
    num_ops = len(schedule.op_start)
    place = np.empty(num_ops, dtype=np.int64)
    place[np.lexsort((np.arange(num_ops), schedule.op_end, schedule.op_start))] = np.arange(num_ops)
    before = np.array([each.before for each in plan.copies], dtype=np.int64)
    number = np.concatenate([np.full(num_ops, len(before)), np.arange(len(before))])
    rank = np.empty(len(number), dtype=np.int32)
    rank[np.lexsort((number, np.concatenate([place, place[before]])))] = np.arange(len(number))
    return rank
