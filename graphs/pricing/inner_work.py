"""The work of the ops inside units, and how often a unit runs them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from graphs import op_types
from graphs.building.constant_values import ConstantValues
from graphs.building.frames import frame_stacks
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.op_graph import FloatArray, IntArray
from graphs.pricing.trip_counts import frame_trip_count, functional_trip_count


@dataclasses.dataclass(frozen=True)
class InnerWork:
    """The I ops inside the bodies of units and of units inside these.

    Attributes:
      node: i4[I] the flat node that each is in.
      times: f8[I] how often it runs in one run; a loop whose trip count isn't known runs once.
      flops: f8[I] each time that it runs.
      memory_bytes: f8[I] read and written each time that it runs.
      launches: bool[I] whether it launches a kernel on a GPU.
      is_priced: bool[I] whether Grappler priced it and its trip count is known.
    """

    node: IntArray
    times: FloatArray
    flops: FloatArray
    memory_bytes: FloatArray
    launches: npt.NDArray[np.bool_]
    is_priced: npt.NDArray[np.bool_]

    @property
    def num_rows(self) -> int:
        return len(self.node)


NO_INNER_WORK = InnerWork(
    np.zeros(0, np.int32),
    np.zeros(0),
    np.zeros(0),
    np.zeros(0),
    np.zeros(0, np.bool_),
    np.zeros(0, np.bool_),
)


def joined(parts: list[InnerWork]) -> InnerWork:
    """The rows of several parts in one."""
    if not parts:
        return NO_INNER_WORK
    fields = [field.name for field in dataclasses.fields(InnerWork)]
    return InnerWork(*(np.concatenate([getattr(p, name) for p in parts]) for name in fields))


@dataclasses.dataclass(frozen=True)
class TripCounts:
    """How often loops run.

    Attributes:
      of_unit: {functional loop: iterations}, where they are known.
      of_frame: {frame of v1 loops: iterations}, where they are known.
      times: f8[nodes] how often each node of a v1 loop or of an opened conditional runs, as far as
        that is known; 1 elsewhere.
    """

    of_unit: Mapping[str, int]
    of_frame: Mapping[str, int]
    times: FloatArray


def trip_counts(flat: FlatGraph, properties: TensorProperties) -> TripCounts:
    """Finds the trip counts of all loops of a flat graph that constants fix."""
    values = ConstantValues(flat.nodes, properties)
    of_unit, of_frame = {}, {}
    stacks = frame_stacks(flat.graph_def.node)
    for node in flat.graph_def.node:
        if node.op in op_types.LOOPS and node.name in flat.unit_of_node:
            count = functional_trip_count(node, flat.library, values)
            if count is not None:
                of_unit[node.name] = count
        elif node.op == "LoopCond" and stacks.get(node.name):
            count = frame_trip_count(node, flat.nodes, values)
            if count is not None:
                of_frame[stacks[node.name][-1]] = count
    times = [
        float(math.prod(of_frame.get(frame, 1) for frame in stacks.get(node.name, ())))
        * flat.share_of_node.get(node.name, 1.0)
        for node in flat.graph_def.node
    ]
    return TripCounts(of_unit, of_frame, np.array(times))
