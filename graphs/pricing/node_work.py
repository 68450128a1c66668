"""The work of each node of a flat graph, whichever device does it.

It depends on the graph and on TensorFlow alone. Asking Grappler's process and TensorFlow's kernel
registry takes seconds. `costs.price` makes each device's seconds of it.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from graphs import op_types
from graphs.building.constant_values import ConstantValues, folded_nodes, handing_on
from graphs.building.frames import frame_stacks
from graphs.building.shapes import MAX_NESTING, TensorProperties, infer
from graphs.building.trip_counts import frame_trip_count, functional_trip_count
from graphs.building.unit_bodies import UnitBodies, unit_bodies
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import reached_functions
from graphs.op_graph import FloatArray, IntArray
from graphs.pricing.grappler_costs import OpWork, estimate, with_defaults
from graphs.pricing.kernel_classes import KERNEL, kernels_of
from graphs.pricing.kernels import KernelTable, kernel_table
from graphs.protos import Library, NodeDef

BoolArray = npt.NDArray[np.bool_]
DEVICE_TYPES = ("CPU", "GPU")


@dataclasses.dataclass(frozen=True)
class NodeWork:
    """What the nodes compute and move, and where they have kernels.

    Attributes:
      work: flops and bytes; nan where Grappler did not price the node.
      kernels: KERNEL[nodes], see kernel_classes.
      has_kernel: {device type: bool[nodes]}.
      launches: {device type: bool[nodes]} whether running the node launches a GPU kernel.
      is_idle: bool[nodes] whether the node takes no time at a step: it hands a buffer on, or is
        computed of constants before the first one.
      kernel_source: which TensorFlow has these kernels, for the report.
      times: f8[nodes] how often each node runs: more than once in v1 loops, less than once in
        branches of conditionals; None for once each.
      inner: what is inside units.
      trip_counts: {loop: iterations} where they are known.
    """

    work: OpWork
    kernels: npt.NDArray[np.void]
    has_kernel: Mapping[str, BoolArray]
    launches: Mapping[str, BoolArray]
    is_idle: BoolArray
    kernel_source: str
    times: npt.NDArray[np.float64] | None = None
    inner: "InnerWork" = dataclasses.field(default_factory=lambda: NO_INNER_WORK)
    trip_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)


def node_work(flat: FlatGraph, properties: TensorProperties, nesting: int = 0) -> NodeWork:
    """Asks Grappler and the kernel registry about every node, and about those inside units."""
    table = kernel_table()
    nodes, library = flat.graph_def.node, flat.library
    own = np.arange(len(nodes))
    alike = own if properties.first is None else properties.first
    trips = trip_counts(flat, properties)
    bodies = unit_bodies(flat, properties) if nesting < MAX_NESTING else None

    def of_all(answer: Callable[[NodeDef, str], bool]) -> dict[str, BoolArray]:
        first = np.flatnonzero(alike == own)
        found = {t: np.zeros(len(nodes), bool) for t in DEVICE_TYPES}
        for device_type, each in found.items():
            each[first] = [answer(nodes[number], device_type) for number in first]
        return {device_type: each[alike] for device_type, each in found.items()}

    free = folded_nodes(flat, properties) | handing_on(flat, properties)
    work = estimate(flat, properties)
    launches = of_all(table.launches)
    return NodeWork(
        OpWork(np.where(free, 0.0, work.flops), np.where(free, 0.0, work.memory_bytes), work.notes),
        kernels_of(flat, properties),
        of_all(lambda node, device_type: runs_on(node, device_type, table, library)),
        {device_type: each & ~free for device_type, each in launches.items()},
        free | [node.op in op_types.NO_LAUNCH for node in nodes],
        table.source,
        trips.times,
        NO_INNER_WORK if bodies is None else _inner_work(flat, bodies, trips, nesting),
        {**trips.of_frame, **trips.of_unit},
    )


def _inner_work(
    flat: FlatGraph, bodies: UnitBodies, trips: "TripCounts", nesting: int
) -> "InnerWork":
    """The rows of all bodies, and of what is inside these."""
    try:
        properties = infer(bodies.flat)
    except ModelError:  # its arguments don't fit; the unit counts as moving its tensors
        return NO_INNER_WORK
    asked = node_work(bodies.flat, properties, nesting + 1)
    unit = np.zeros(len(bodies.function_of_node), np.int32)
    times = np.zeros(len(unit))
    is_known = np.ones(len(unit), np.bool_)
    for i, number in enumerate(bodies.function_of_node):
        if number < 0:
            continue
        function = bodies.functions[number]
        head = flat.graph_def.node[function.unit]
        unit[i] = function.unit
        times[i] = trips.of_unit.get(head.name, 1) * function.share * trips.times[function.unit]
        is_known[i] = head.op not in op_types.LOOPS or head.name in trips.of_unit
    filled = with_defaults(bodies.flat, properties, asked.work)
    rows = np.flatnonzero(~asked.is_idle & (times > 0.0))
    own = times if asked.times is None else times * asked.times
    outer = InnerWork(
        unit[rows],
        own[rows],
        filled.flops[rows],
        filled.memory_bytes[rows],
        asked.kernels[rows],
        asked.launches["GPU"][rows],
        (is_known & ~np.isnan(asked.work.flops))[rows],
    )
    inside = asked.inner
    nested = dataclasses.replace(
        inside,
        node=unit[inside.node],
        times=inside.times * times[inside.node],
        is_priced=inside.is_priced & is_known[inside.node],
    )
    return joined([outer, nested])


def runs_on(node: NodeDef, device_type: str, table: KernelTable, library: Library) -> bool:
    """Whether a node, and everything in the functions that it runs, has a kernel on a device type.

    An op type without any registration, here or shipped (a custom op of another process, say),
    is taken to run on CPUs only.
    """
    if node.op not in table.of_op:
        return device_type == "CPU"
    if table.matching(node, device_type) is None:
        return False
    return all(
        inner.op in library or runs_on(inner, device_type, table, {})
        for function in reached_functions([node], library)
        for inner in library[function].node_def
    )


@dataclasses.dataclass(frozen=True)
class InnerWork:
    """The I ops inside the bodies of units and of units inside these.

    Attributes:
      node: i4[I] the flat node that each is in.
      times: f8[I] how often it runs in one run; a loop whose trip count isn't known runs once.
      flops: f8[I] each time that it runs.
      memory_bytes: f8[I] read and written each time that it runs.
      kernels: KERNEL[I].
      launches: bool[I] whether it launches a kernel on a GPU.
      is_priced: bool[I] whether Grappler priced it and its trip count is known.
    """

    node: IntArray
    times: FloatArray
    flops: FloatArray
    memory_bytes: FloatArray
    kernels: npt.NDArray[np.void]
    launches: npt.NDArray[np.bool_]
    is_priced: npt.NDArray[np.bool_]

    @property
    def num_rows(self) -> int:
        return len(self.node)


NO_INNER_WORK: InnerWork = InnerWork(
    np.zeros(0, np.int32),
    np.zeros(0),
    np.zeros(0),
    np.zeros(0),
    np.zeros(0, KERNEL),
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
