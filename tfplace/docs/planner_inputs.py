"""Other planners' inputs as problems for `tfplace solve`; the files are not ours to ship.

Read are the JSON of Tarnawski et al. (NeurIPS 2020, github.com/msr-fiddle/dnn-partitioning), that
of Piper (NeurIPS 2021, github.com/msr-fiddle/piper) and the profiles of DAPPLE (PPoPP 2021,
github.com/AlibabaPAI/DAPPLE). They plan pipelines for many samples; so the graph is written once
for each of so many, a layer's copies on one device: makespan / samples is what they call the
maximal load, and the filling of the pipeline besides.

    python -m tfplace.docs.planner_inputs gnmt_training.json --samples=16 --output=gnmt.npz

Where the models differ stands in tfplace/docs/benchmarks/planners.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphs.errors import BadInputError, ModelError
from graphs.problem import Problem
from graphs.problem_file import write_problem
from tfplace.docs.planner_problem import Layer, Planned, problem_of

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
        return _partitioning(value) if "maxFPGAs" in value else _piper(value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"reading the planner's input {path}: {type(error).__name__}: {error}; wanted a JSON "
            "of dnn-partitioning or Piper, or a profile of DAPPLE"
        ) from None


def _partitioning(value: Mapping[str, Any]) -> Planned:
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


def _piper(value: Mapping[str, Any]) -> Planned:
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
