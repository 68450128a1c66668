"""Step times that are as good as equal: then fewer devices win, then fewer transfers.

A predicted step is never known to 1 %, and a device that is not used is free for something else.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from graphs.op_graph import IntArray, LongArray
from graphs.problem import Problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.memory_limit import num_counted
from tfplace.simulation.evaluator import SimulatingEvaluator

TIE = 0.01
IDLE = 0.05
"""A device that works for less than this share of the step does next to nothing."""
MOST_OPS, LEAST_PAIRS = 5_000_000, 8
"""Ops that are simulated, in all, to find devices that can be spared; it takes a second or two. For
each device that is given up, at most half of those that are left: pairs of devices that send each
other most are tried first, and LEAST_PAIRS in any case."""


def simplest(problem: Problem, candidates: Sequence[Candidate]) -> Candidate:
    """Of the candidates within TIE of the fastest, the one with the fewest devices.

    Counted devices come first, then all, transfers, step time; the earlier of equals.
    """
    limit = min(candidate.step_seconds for candidate in candidates) * (1.0 + TIE)
    tied = [candidate for candidate in candidates if candidate.step_seconds <= limit]
    return min(tied, key=lambda each: (*extent(problem, each.device_of_op), each.step_seconds))


def extent(problem: Problem, device_of_op: IntArray) -> tuple[int, int, int]:
    """Counted devices, devices and transfers of a placement i4[N]."""
    return (
        num_counted(problem, device_of_op),
        len(np.unique(device_of_op)),
        len(moved_tensors(problem, device_of_op)),
    )


def moved_tensors(problem: Problem, device_of_op: IntArray) -> LongArray:
    """i8[K]: the tensor of each transfer of a placement i4[N].

    One for each other device that has users of a tensor (the contract, section 6).
    """
    graph = problem.graph
    target = device_of_op[graph.use_op]
    moved = device_of_op[graph.tensor_producer[graph.use_tensor]] != target
    copies = graph.use_tensor[moved].astype(np.int64) * problem.num_devices + target[moved]
    return np.asarray(np.unique(copies) // problem.num_devices)


def without_idle(
    problem: Problem, simulator: SimulatingEvaluator, candidate: Candidate
) -> Candidate:
    """The candidate without the devices that do next to nothing, where that costs less than TIE."""
    limit = candidate.step_seconds * (1.0 + TIE)
    left = MOST_OPS
    while moved := list(_without_one(problem, candidate, left // 2)):
        left -= len(moved) * problem.num_ops
        outcomes = simulator.evaluate(np.array(moved, dtype=np.int32))
        tried = [Candidate(candidate.name, *each) for each in zip(moved, outcomes, strict=True)]
        fewer = [each for each in tried if each.step_seconds <= limit]
        if not fewer:
            break
        candidate = min(fewer, key=lambda each: each.step_seconds)
    return candidate


def _without_one(problem: Problem, candidate: Candidate, most_ops: int) -> Iterator[IntArray]:
    """i4[N] placements in which one device's ops have gone to another one, one of them idle.

    Together they have about `most_ops` ops at most.
    """
    device_of_op, allowed = candidate.device_of_op, problem.allowed()
    seconds = problem.op_seconds[np.arange(problem.num_ops), device_of_op]
    work = np.bincount(device_of_op, weights=seconds, minlength=problem.num_devices)
    is_idle = work <= IDLE * candidate.step_seconds * problem.device_slots
    pairs = [
        (device, other)
        for device, other in itertools.permutations(np.unique(device_of_op).tolist(), 2)
        if (is_idle[device] or is_idle[other]) and allowed[device_of_op == device, other].all()
    ]
    most = max(most_ops // max(problem.num_ops, 1), LEAST_PAIRS)
    if len(pairs) > most:
        producer, user, num_bytes = problem.graph.op_edges()
        sent = np.zeros((problem.num_devices, problem.num_devices), dtype=np.int64)
        np.add.at(sent, (device_of_op[producer], device_of_op[user]), num_bytes)
        sent = sent + sent.T  # what two devices send each other, counted for each use
        pairs = sorted(pairs, key=lambda pair: -sent[pair])[:most]
    for device, other in pairs:
        yield np.where(device_of_op == device, other, device_of_op).astype(np.int32)
