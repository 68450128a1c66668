"""Other planners' inputs as problems for `tfplace solve`; the files are not ours to ship.

Read are the JSON of Tarnawski et al. (NeurIPS 2020, github.com/msr-fiddle/dnn-partitioning), that
of Piper (NeurIPS 2021, github.com/msr-fiddle/piper) and the profiles of DAPPLE (PPoPP 2021,
github.com/AlibabaPAI/DAPPLE). They plan pipelines for many samples; so the graph is written once
for each of so many, a layer's copies on one device: makespan / samples is what they call the
maximal load, and the filling of the pipeline besides.

    python -m tests.tables.planner_inputs gnmt_training.json --samples=16 --output=gnmt.npz

Where the models differ stands in tfplace/docs/benchmarks/planners.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import graphlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphs.cluster import rule_channels
from graphs.errors import BadInputError, ModelError
from graphs.executor_model import ExecutorModel
from graphs.op_graph import SHAPE_DIMS, OpGraph
from graphs.problem import Problem
from graphs.problem_file import write_problem

MILLISECOND = 1e-3
NOMINAL_RATE = 1e9
"""Bytes per second of links whose file gives seconds instead of bytes."""
_PROFILE = re.compile(r"^(\S+) -- (.*) -- (forward_compute_time=.*)$")


def read_planned(path: str, num_devices: int, bytes_per_second: float) -> Planned:
    """Reads any of the three formats; devices and rate count where the file names none.

    Raises:
      ModelError: it is none of them.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        if " -- forward_compute_time=" in text:
            return _profile(text, num_devices, bytes_per_second)
        value = json.loads(text)
        return partitioning_input(value) if "maxFPGAs" in value else piper_input(value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"reading the planner's input {path}: {type(error).__name__}: {error}; wanted a JSON "
            "of dnn-partitioning or Piper, or a profile of DAPPLE"
        ) from None


def partitioning_input(value: Mapping[str, Any]) -> Planned:
    """Edges cost milliseconds between an accelerator and the host; a CPU has no limit."""
    layers = {
        node["id"]: Layer(
            f"{node.get('name', 'node')}/{node['id']}",
            (
                node["cpuLatency"] * MILLISECOND,
                node["fpgaLatency"] * MILLISECOND if node["supportedOnFpga"] else np.inf,
            ),
            int(node["size"]),
            0,
            str(node.get("colorClass", f"node {node['id']}")),
        )
        for node in value["nodes"]
    }
    edges = [
        (each["sourceId"], each["destId"], round(each["cost"] * MILLISECOND * NOMINAL_RATE))
        for each in value["edges"]
    ]
    memory = int(value["maxSizePerFPGA"])
    return Planned(layers, edges, value["maxCPUs"], value["maxFPGAs"], memory, NOMINAL_RATE)


def piper_input(value: Mapping[str, Any]) -> Planned:
    """Layers without tensor parallelism and recomputation; forward and backward are one op."""
    layers = {}
    for node in value["nodes"]:
        plain = node["TMPCs"]["1"][0]
        seconds, held = plain["timePerSample"] * MILLISECOND, plain["memoryUsageB"]
        name = f"{node.get('name', 'node')}/{node['id']}"
        layers[node["id"]] = Layer(name, (np.inf, seconds), int(held), 0, name)
    edges = [(e["sourceId"], e["destId"], int(e["communicationCost"])) for e in value["edges"]]
    memory = int(value["maxMemoryPerDevice"])
    return Planned(layers, edges, 0, value["maxDevices"], memory, value["bandwidth"])


def _profile(text: str, num_devices: int, bytes_per_second: float) -> Planned:
    """A forward and a backward op for each layer, which share a device."""
    layers: dict[Any, Layer] = {}
    edges: list[tuple[Any, Any, int]] = []
    size: dict[str, int] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if (match := _PROFILE.match(line)) is None:
            maker, _, user = line.partition(" -- ")
            edges.append((maker, user, size[maker]))
            edges.append(((user, "back"), (maker, "back"), size[maker]))
            continue
        name, _, figures = match.groups()
        known = dict(part.split("=") for part in figures.split(", "))
        outputs = known["activation_size"].strip("[]").split(";")
        size[name] = sum(int(float(each)) for each in outputs)
        held = int(float(known["parameter_size"]))
        forward, backward = (
            float(known[f"{way}_compute_time"]) * MILLISECOND for way in ("forward", "backward")
        )
        layers[name] = Layer(name, (np.inf, forward), held, size[name], name)
        layers[name, "back"] = Layer(f"{name}/backward", (np.inf, backward), held, 0, name)
        edges.append((name, (name, "back"), 0))
    return Planned(layers, edges, 0, num_devices, 16 << 30, bytes_per_second)


def split_of(path: str, planned: Planned, problem: Problem) -> np.ndarray:
    """i4[N]: the placement that dnn-partitioning's programs print as JSON; becomes `given`.

    Raises:
      ModelError: it is no such file, or leaves out a layer.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        parts = [*value["cpus"], *([{"nodes": []}] * (planned.num_cpus - len(value["cpus"])))]
        parts += value["fpgas"]
        device_of = {
            f"{planned.layers[node].name}/sample_": device
            for device, part in enumerate(parts)
            for node in part["nodes"]
        }
        names = [name.rstrip("0123456789") for name in problem.graph.op_names]
        return np.array([device_of[name] for name in names], dtype=np.int32)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"reading the split {path}: {type(error).__name__}: {error}; wanted what "
            "dnn-partitioning's programs print for this input"
        ) from None


def main(words: Sequence[str] | None = None) -> int:
    """Converts one file; returns the exit status."""
    parser = argparse.ArgumentParser(description="a planner's input as a problem's file")
    parser.add_argument("input")
    parser.add_argument("--output", required=True)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--split", help="a result of dnn-partitioning: the placement `given`")
    parser.add_argument("--devices", type=int, default=8, help="of a profile of DAPPLE")
    parser.add_argument("--bytes_per_second", type=float, default=10e9, help="likewise")
    given = parser.parse_args(words)
    try:
        planned = read_planned(given.input, given.devices, given.bytes_per_second)
        problem = problem_of(planned, max(given.samples, 1))
        placement = np.argmin(problem.op_seconds, axis=1)
        if given.split is not None:
            placement = split_of(given.split, planned, problem)
        write_problem(given.output, problem, placement.astype(np.int32))
    except BadInputError as error:
        print(f"planner_inputs: error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())


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
