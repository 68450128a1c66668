"""Pipelines as other planners see them: the load of the fullest device while the pipeline is full.

Each device then works on another sample, so no layer waits for one of its own sample, and a sample
takes as long as the fullest device's layers and its transfers, which are work of both ends. This is
the objective of Piper and of dnn-partitioning; here it is a `Problem` whose makespan is that load,
and a sum that says the load of any plan exactly.
"""

from __future__ import annotations

import dataclasses
import graphlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.executor_model import ExecutorModel
from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tables.planner_inputs import Planned

Plan = Mapping[Any, int]
"""{key of a layer: index of its device}; CPUs come before accelerators."""


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A planner's input as that planner reads it.

    Attributes:
      planned: layers, edges, devices.
      each_edge: every edge moves its own bytes (Piper); else a layer's output is read once by each
        device that needs it, and leaves its own once (dnn-partitioning).
      forward: keys of the layers that a contiguous plan is about.
    """

    planned: Planned
    each_edge: bool
    forward: frozenset[Any]


def most_load(pipeline: Pipeline, plan: Plan) -> float:
    """Seconds a sample takes on the fullest device, by the planner's own rule."""
    planned = pipeline.planned
    load = np.zeros(planned.num_cpus + planned.num_accelerators)
    for key, layer in planned.layers.items():
        load[plan[key]] += layer.seconds[int(plan[key] >= planned.num_cpus)]
    paid: set[Any] = set()
    for number, (maker, user, size) in enumerate(planned.edges):
        ends = plan[maker], plan[user]
        if ends[0] != ends[1]:
            for way, device in zip(("out", "in"), ends, strict=True):
                once = number if pipeline.each_edge else maker
                if (way, device, once) not in paid and device >= planned.num_cpus:
                    load[device] += size / planned.bytes_per_second
                paid.add((way, device, once))
    return float(load.max())


def most_memory(pipeline: Pipeline, plan: Plan) -> int:
    """Bytes of the accelerator that holds most."""
    planned = pipeline.planned
    held = np.zeros(planned.num_cpus + planned.num_accelerators, dtype=np.int64)
    for key, layer in planned.layers.items():
        held[plan[key]] += layer.held_bytes
    return int(held[planned.num_cpus :].max())


def is_contiguous(pipeline: Pipeline, plan: Plan) -> bool:
    """Whether the devices can be put in a row so that no forward edge leads back."""
    waits: dict[int, set[int]] = {}
    for maker, user, _ in pipeline.planned.edges:
        if {maker, user} <= pipeline.forward and plan[maker] != plan[user]:
            waits.setdefault(plan[user], set()).add(plan[maker])
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError:
        return False
    return True


def full_pipeline(pipeline: Pipeline) -> tuple[Problem, list[Any]]:
    """The problem of which the makespan is `most_load` (or a little more), and its layers' keys.

    An op for each layer, which waits for nothing, and one without seconds for each edge, which is
    where the edge's user is and gets what is moved. Layers that come last start first, so that a
    device sends early. Where a tensor goes to several devices, its maker pays for each.
    """
    planned = pipeline.planned
    waits: dict[Any, set[Any]] = {key: set() for key in planned.layers}
    for maker, user, _ in planned.edges:
        waits[user].add(maker)
    keys = list(graphlib.TopologicalSorter(waits).static_order())[::-1]
    together = {name: i for i, name in enumerate({x.together: 0 for x in planned.layers.values()})}
    group = {key: together[planned.layers[key].together] for key in keys}
    sent: dict[Any, list[int]] = {key: [] for key in keys}  # bytes of each output
    ends: list[Op] = []
    for number, (maker, user, size) in enumerate(planned.edges):
        if pipeline.each_edge or not sent[maker]:
            sent[maker].append(size)
        tensor = f"layer_{keys.index(maker)}:{len(sent[maker]) - 1}"
        ends.append(Op(f"edge_{number}", 0.0, (tensor,), (), colocation=group[user]))
    ops = [
        Op(
            f"layer_{i}",
            _on_devices(planned, planned.layers[key].seconds),
            (),
            sent[key],
            alloc=[0] * len(sent[key]),
            persistent=planned.layers[key].held_bytes,
            colocation=group[key],
        )
        for i, key in enumerate(keys)
    ]
    return _with_work_of_transfers(planned, [*ops, *ends]), keys


def _on_devices(planned: Planned, seconds: Sequence[float]) -> list[float]:
    return [seconds[0]] * planned.num_cpus + [seconds[1]] * planned.num_accelerators


def _with_work_of_transfers(planned: Planned, ops: Sequence[Op]) -> Problem:
    """The problem; a received copy takes no memory, since the planners count none."""
    cpus, number = planned.num_cpus, planned.num_cpus + planned.num_accelerators
    memory = [1 << 50] * cpus + [planned.memory_bytes] * planned.num_accelerators
    types = ["CPU"] * cpus + ["GPU"] * planned.num_accelerators
    problem = build_problem(ops, Machine(number, bandwidth=1e30, memory=memory, types=types))
    send, receive = np.zeros((number, number, 2)), np.zeros((number, number, 2))
    send[cpus:, :, 1] = receive[:, cpus:, 1] = 1.0 / planned.bytes_per_second
    inline = np.zeros(problem.num_ops, dtype=bool)
    return dataclasses.replace(problem, executor=ExecutorModel(send, receive, inline))
