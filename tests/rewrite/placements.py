"""Placements for tests of emitting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from graphs.flat_graph import FlatGraph, Origin
from graphs.protos import GraphDef
from graphs.source_model import SourceModel
from rewrite.call_graph import CallGraph, places_of

CPU0, CPU1 = "/device:CPU:0", "/device:CPU:1"
ON_CPU1 = frozenset({"MatMul", "Tanh", "GatherV2", "Gather", "Sub"})


@dataclasses.dataclass(frozen=True)
class Placed:
    """A model, the placement it was given, the emitted model, and the ops that it doesn't have."""

    source: SourceModel
    flat: FlatGraph
    wanted: Mapping[Origin, str]
    path: str
    ignored: Sequence[Origin]


def alternating(flat: FlatGraph) -> dict[Origin, str]:
    """Some types of ops on CPU:1 and the rest on CPU:0, but each tanh of a call chain and each
    variable on the next device in turn."""
    wanted: dict[Origin, str] = {}
    num_turns = 0
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        if not origin.node or origin in wanted:
            continue
        if node.op in ("Tanh", "VarHandleOp", "VariableV2"):
            num_turns += 1
            wanted[origin] = (CPU0, CPU1)[num_turns % 2]
        else:
            wanted[origin] = CPU1 if node.op in ON_CPU1 else CPU0
    return wanted


def read_devices(graph_def: GraphDef, origins: Iterable[Origin]) -> dict[Origin, str]:
    """{origin: device string} as the graph has it; each op has one, in all copies."""
    calls, device_of_origin = CallGraph(graph_def), {}
    for origin in origins:
        devices = {calls.nodes(f)[node].device for f, node in places_of(calls, origin)}
        assert len(devices) == 1, (origin, devices)
        device_of_origin[origin] = devices.pop()
    return device_of_origin
