"""A planner's graph, once for each of so many samples, as a problem for `tfplace solve`."""

from __future__ import annotations

import dataclasses
import graphlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.cluster import rule_channels
from graphs.errors import ModelError
from graphs.executor_model import ExecutorModel
from graphs.op_graph import SHAPE_DIMS, OpGraph
from graphs.problem import Problem


@dataclasses.dataclass(frozen=True)
class Layer:
    """A node of a planner's graph.

    Attributes:
      name: unique.
      seconds: on a CPU and on an accelerator; inf where it can't run.
      held_bytes: on its device, however many samples.
      sample_bytes: that each sample holds there besides.
      together: layers with one value share a device.
    """

    name: str
    seconds: tuple[float, float]
    held_bytes: int
    sample_bytes: int
    together: str


@dataclasses.dataclass(frozen=True)
class Planned:
    """A planner's input.

    Attributes:
      layers: by key.
      edges: (maker, user, bytes); edges of one maker with equal bytes are one tensor.
      num_cpus, num_accelerators: devices.
      memory_bytes: of an accelerator.
      bytes_per_second: of all links.
    """

    layers: Mapping[Any, Layer]
    edges: Sequence[tuple[Any, Any, int]]
    num_cpus: int
    num_accelerators: int
    memory_bytes: int
    bytes_per_second: float


def problem_of(planned: Planned, samples: int) -> Problem:
    """The problem of so many samples, whose ops come one sample after another.

    Devices work depth-first (the contract, section 6, rule 7, with sends that take nothing). First
    come first served, rule 1, a device would run every sample's first layer before any second one.

    Raises:
      ModelError: the graph has a cycle, or an edge of a node that it has not.
    """
    waits: dict[Any, set[Any]] = {key: set() for key in planned.layers}
    users: dict[tuple[Any, int], list[Any]] = {}
    for maker, user, size in planned.edges:
        if not {maker, user} <= waits.keys():
            raise ModelError(f"ordering a planner's graph: {maker!r} -> {user!r} is of no nodes")
        waits[user].add(maker)
        users.setdefault((maker, size), []).append(user)
    try:
        order = list(graphlib.TopologicalSorter(waits).static_order())
    except graphlib.CycleError as error:
        raise ModelError(f"ordering a planner's graph: it has a cycle: {error.args[1]}") from None
    place = {key: index for index, key in enumerate(order)}
    tensors = sorted(users, key=lambda tensor: place[tensor[0]])
    seen: set[Any] = set()
    alloc = []
    for maker, _ in tensors:
        alloc.append(0 if maker in seen else planned.layers[maker].sample_bytes)
        seen.add(maker)
    layers = [planned.layers[key] for key in order]
    of_tensor = [(t, place[user]) for t, name in enumerate(tensors) for user in set(users[name])]
    pairs = np.array(sorted(of_tensor), dtype=np.int64).reshape(-1, 2)
    shift = np.arange(samples)[:, None]
    together = {name: index for index, name in enumerate(dict.fromkeys(x.together for x in layers))}
    num_ops, num_tensors = len(layers) * samples, len(tensors) * samples
    held = np.zeros(num_ops, dtype=np.int64)
    held[: len(layers)] = [layer.held_bytes for layer in layers]
    producer = np.array([place[maker] for maker, _ in tensors], dtype=np.int64)
    graph = OpGraph(
        op_names=[f"{layer.name}/sample_{m}" for m in range(samples) for layer in layers],
        op_types=["Layer"] * num_ops,
        tensor_producer=(producer + shift * len(layers)).ravel().astype(np.int32),
        tensor_output=np.zeros(num_tensors, dtype=np.int32),
        tensor_bytes=np.tile(np.array([size for _, size in tensors], dtype=np.int64), samples),
        tensor_alloc_bytes=np.tile(np.array(alloc, dtype=np.int64), samples),
        tensor_shares=np.full(num_tensors, -1, dtype=np.int32),
        tensor_takes_over=np.zeros(num_tensors, dtype=bool),
        tensor_shape=np.full((num_tensors, SHAPE_DIMS), -1, dtype=np.int32),
        use_tensor=(pairs[:, 0] + shift * len(tensors)).ravel().astype(np.int32),
        use_op=(pairs[:, 1] + shift * len(layers)).ravel().astype(np.int32),
        op_persistent_bytes=held,
        op_temp_bytes=np.zeros(num_ops, dtype=np.int64),
        colocation_group=np.tile([together[x.together] for x in layers], samples).astype(np.int32),
    )
    return _on_devices(planned, graph, np.tile([x.seconds for x in layers], (samples, 1)))


def _on_devices(planned: Planned, graph: OpGraph, seconds: np.ndarray) -> Problem:
    kinds = [0] * planned.num_cpus + [1] * planned.num_accelerators
    names = [f"{'CPU' if not kind else 'GPU'}:{i}" for i, kind in enumerate(kinds)]
    number = len(kinds)
    memory = [1 << 50 if not kind else planned.memory_bytes for kind in kinds]
    return Problem(
        graph=graph,
        op_seconds=np.ascontiguousarray(seconds[:, kinds]),
        pinned_device=np.full(graph.num_ops, -1, dtype=np.int32),
        device_names=names,
        device_types=[name[:3] for name in names],
        device_slots=np.ones(number, dtype=np.int32),
        device_memory_bytes=np.array(memory, dtype=np.int64),
        link_latency=np.zeros((number, number)),
        link_bytes_per_second=np.full((number, number), planned.bytes_per_second),
        link_channels=rule_channels("duplex", number),
        memory_reserve=0.0,
        communication="duplex",
        executor=_depth_first(graph.num_ops, number),
    )


def _depth_first(num_ops: int, num_devices: int) -> ExecutorModel:
    nothing = np.zeros((num_devices, num_devices, 2))
    return ExecutorModel(nothing, nothing, np.zeros(num_ops, dtype=bool))
