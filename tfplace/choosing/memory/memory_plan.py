"""Makes a placement fit: what each device drops and computes again, as the simulator judges it."""

import dataclasses
import math
import time
from collections.abc import Mapping

import numpy as np

from graphs.building.op_outputs import op_definition
from graphs.names import data_inputs, parse_input
from graphs.op_graph import BoolArray, FloatArray, IntArray
from graphs.op_types import ALIASES, PYTHON, REACHES_OUT
from graphs.problem import Problem
from graphs.protos import NodeDef, OpDef
from rewrite.memory.recompute import MemoryPlan, NodeCopy
from tfplace.choosing.memory.copies import with_copies, with_their_copies
from tfplace.choosing.memory.rematerialize import (
    CopyPlan,
    MayChange,
    NoRoomError,
    Weights,
    rematerialized,
)
from tfplace.choosing.scheduling.anchors import anchors_of
from tfplace.choosing.scheduling.model_order import bodies_of, may_be_waited_for
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulated import Simulated, simulated

WEIGHTS = (Weights(), Weights(cost=2.0), Weights(wait=0.0))
"""By which it is tried to choose what is dropped."""
MOST_TRIES, NEAR = 4, 0.995
"""A plan takes ops one by one, where a device may run several at once: one that doesn't fit is made
again with as much less memory as it was over, and a little."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """A placement that fits with a plan.

    Attributes:
      plan: what runs again.
      simulated: the placement, with the copies.
    """

    plan: CopyPlan
    simulated: Simulated

    @property
    def step_seconds(self) -> float:
        return self.simulated.outcome.step_seconds


def fitted(
    problem: Problem, device_of_op: IntArray, may: MayChange, until: float = math.inf
) -> Planned | None:
    """The fastest plan that was found with which a placement fits; None where none was.

    Args:
      problem: what is placed.
      device_of_op: i4[N].
      may: what a rewrite may touch.
      until: on time.monotonic; then nothing more is tried.
    """
    schedule = simulated(problem, device_of_op).known_schedule()
    best: Planned | None = None
    usable = problem.usable_bytes()
    for weights in WEIGHTS:
        limits = np.where(np.array(schedule.peak_bytes) > usable, usable, np.inf)
        for _ in range(MOST_TRIES):
            if time.monotonic() >= until:
                return best
            try:
                planned = _planned(problem, schedule, may, weights, limits)
            except NoRoomError:
                break
            if planned.simulated.is_feasible:
                if best is None or planned.step_seconds < best.step_seconds:
                    best = planned
                break
            peaks = np.maximum(planned.simulated.outcome.peak_bytes, 1)
            less = np.minimum(limits, usable) * usable / peaks * NEAR
            limits = np.where(peaks > usable, less, limits)
    return best


def _planned(
    problem: Problem, schedule: Schedule, may: MayChange, weights: Weights, limits: FloatArray
) -> Planned:
    """A plan for each device that has a limit [D], and the placement with the copies.

    Raises:
      NoRoomError: no plan was found.
    """
    plan = CopyPlan()
    for device in np.flatnonzero(np.isfinite(limits)).tolist():
        plan = rematerialized(problem, schedule, device, limits[device], may, weights, plan)
    edged = with_copies(problem, plan)
    placement = edged.renumbered(with_their_copies(schedule.device_of_op, plan))
    return Planned(plan, simulated(edged.problem, placement))


def may_change(prepared: PreparedModel) -> MayChange:
    """What of a model's step may run again, read copies, and be waited for."""
    graph, bodies = prepared.problem.graph, bodies_of(prepared, with_shared=True)
    anchors = anchors_of(prepared.problem, bodies, may_be_waited_for(prepared))
    producer, user, _ = graph.op_edges()
    repeat = (bodies >= 0) & _repeatable(prepared)
    elsewhere = (bodies[user] >= 0) & (bodies[producer] != bodies[user])
    repeat[producer[elsewhere]] = False
    return MayChange(repeat, anchors.may_hold, bodies)


def _repeatable(prepared: LoadedModel) -> BoolArray:
    """bool[N]: ops that compute the same whenever they run."""
    flat, built = prepared.flat, prepared.built
    result = np.zeros(built.graph.num_ops, dtype=bool)
    by_reference: set[str] = set()
    if any(node.op.startswith("Inplace") for node in flat.graph_def.node):
        return result  # they change what they read, though TensorFlow calls them stateless
    for node, op in zip(flat.graph_def.node, built.op_of_node.tolist(), strict=True):
        if node.op in flat.library:
            continue
        sources = [parse_input(name).op for name in data_inputs(node)]
        reads_reference = any(source in by_reference for source in sources)
        definition = op_definition(node.op, node.name)
        is_reference = any(each.is_ref for each in definition.output_arg)
        if is_reference or (reads_reference and node.op in ALIASES):
            by_reference.add(node.name)  # its buffer may be the variable's, which is written later
        result[op] = bool(sources) and not reads_reference and _is_pure(node, definition)
    return result


def _is_pure(node: NodeDef, definition: OpDef) -> bool:
    """Whether an op has no state, no effect and no function, and reads and makes tensors alone."""
    from tensorflow.core.framework import types_pb2

    handles = {types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT}
    values, arguments = node.attr.values(), (*definition.input_arg, *definition.output_arg)
    return not (
        definition.is_stateful
        or node.op in PYTHON
        or node.op in REACHES_OUT
        or any(each.is_ref or each.type in handles for each in arguments)
        or any(not handles.isdisjoint((each.type, *each.list.type)) for each in values)
        or any(each.WhichOneof("value") == "func" or each.list.func for each in values)
    )


def as_nodes(prepared: LoadedModel, plan: CopyPlan) -> MemoryPlan:
    """A plan as the model's graph and functions name their ops."""
    origin_of = dict(zip(prepared.built.op_of_node.tolist(), prepared.flat.origins, strict=True))
    producer = prepared.built.graph.tensor_producer

    def reads_of(reads: Mapping[int, int]) -> dict[str, int]:
        return {origin_of[int(producer[t])].node: copy for t, copy in reads.items()}

    copies = [
        NodeCopy(
            (origin_of[each.op].function, origin_of[each.op].node),
            reads_of(each.reads),
            origin_of[each.after].node if each.after >= 0 else "",
        )
        for each in plan.copies
    ]
    reads = {
        (origin_of[op].function, origin_of[op].node): reads_of(of_op)
        for op, of_op in plan.reads.items()
    }
    return MemoryPlan(copies, reads)
