"""A step that doesn't fit, or would be slower for a limit of memory, is made to fit."""

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from graphs.building.op_outputs import op_definition, output_dtype
from graphs.by_key import by_key
from graphs.names import data_inputs, parse_input
from graphs.op_graph import BoolArray, FloatArray, IntArray, LongArray
from graphs.op_types import ALIASES, PYTHON, REACHES_OUT
from graphs.problem import Infeasible, Problem
from graphs.protos import JsonObject, NodeDef, OpDef
from rewrite.memory.recompute import AGAIN, KEPT, MARK, MemoryPlan, NodeCopy
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.memory.predicted_peaks import predicted_peaks
from tfplace.choosing.memory.rematerialize import (
    ORIGINAL,
    CopyPlan,
    MayChange,
    NoRoomError,
    Weights,
    host_of,
    rematerialized,
)
from tfplace.choosing.memory_limit import at_most
from tfplace.choosing.outcomes import Found
from tfplace.choosing.scheduling import edges
from tfplace.choosing.scheduling.anchors import anchors_of
from tfplace.choosing.scheduling.list_schedules import by_memory
from tfplace.choosing.scheduling.model_order import (
    OwnOrder,
    bodies_of,
    may_be_waited_for,
    simulated_in_order,
)
from tfplace.choosing.unsplit_baselines import Unsplit
from tfplace.measurement.run_measurement import measure_peaks
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.progress import Progress
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
    temporary = graph.op_temp_bytes[op_at]
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
    for own, copy in enumerate(plan.copies, num_ops):
        if copy.tensor >= 0:
            whole.op_seconds[own], whole.pinned_device[own], temporary[own] = np.inf, -1, 0
            whole.op_seconds[own, copy.host] = HANDED_BACK_SECONDS
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
SENT = frozenset((1, 2, 9, 10, 14, 19))
"""DataTypes of what may wait on a host: floats, int64 and bool, which lie in a GPU's memory."""
NEARLY_FREE = 1.01
"""A plan that takes so much of the step without a limit is not worth another look."""
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
    problem: Problem, device_of_op: IntArray, may: MayChange, until: float = math.inf
) -> Planned | None:
    """The fastest plan that was found with which a placement fits; None where none was.

    Args:
      device_of_op: i4[N].
      until: on time.monotonic; then nothing more is tried.
    """
    schedules = [simulated(problem, device_of_op).known_schedule()]
    if _edges_can_say(problem):
        ranked = dataclasses.replace(problem, start_rank=by_memory(problem, schedules[0]))
        schedules.insert(0, simulated(ranked, device_of_op).known_schedule())
    best: Planned | None = None
    usable = problem.usable_bytes()
    over = np.flatnonzero(np.array(schedules[0].peak_bytes) > usable).tolist()
    sends = may.send is not None and any(host_of(problem, device) >= 0 for device in over)
    ways = (dataclasses.replace(each, sends=True) for each in WEIGHTS if sends)
    for weights, schedule in itertools.product((*ways, *WEIGHTS), schedules):
        limits = np.where(np.array(schedule.peak_bytes) > usable, usable, np.inf)
        foreseen, fastest = CopyPlan(), math.inf
        for _ in range(MOST_TRIES):
            if time.monotonic() >= until:
                return best
            try:
                planned = _planned(problem, schedule, may, weights, limits, foreseen)
            except NoRoomError:
                break
            foreseen = planned.plan
            if planned.simulated.is_feasible:
                if best is None or planned.step_seconds < best.step_seconds:
                    best = planned
                if best.step_seconds <= NEARLY_FREE * schedule.makespan:
                    return best
                if planned.step_seconds >= fastest:
                    break
                fastest = planned.step_seconds
                continue
            peaks = np.maximum(planned.simulated.outcome.peak_bytes, 1)
            less = np.minimum(limits, usable) * usable / peaks * NEAR
            limits = np.where(peaks > usable, less, limits)
    return best


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


def may_change(prepared: PreparedModel) -> MayChange:
    """What of a model's step may run again, read copies, and be waited for."""
    graph, bodies = prepared.problem.graph, bodies_of(prepared, with_shared=True)
    anchors = anchors_of(prepared.problem, bodies, may_be_waited_for(prepared))
    producer, user, _ = graph.op_edges()
    repeat = (bodies >= 0) & _repeatable(prepared)
    elsewhere = (bodies[user] >= 0) & (bodies[producer] != bodies[user])
    stays = bodies < 0
    repeat[producer[elsewhere]], stays[producer[elsewhere]] = False, True
    send = ~stays[graph.tensor_producer] & _plain(prepared)
    return MayChange(repeat, anchors.may_hold, bodies, send)


def _plain(prepared: LoadedModel) -> BoolArray:
    """bool[T]: numbers that TensorFlow can send, and that nothing writes into."""
    graph, library = prepared.built.graph, prepared.flat.library
    nodes = dict(zip(prepared.built.op_of_node.tolist(), prepared.flat.graph_def.node, strict=True))
    result = np.zeros(graph.num_tensors, dtype=bool)
    if any(node.op.startswith("Inplace") for node in nodes.values()):
        return result
    pairs = zip(graph.tensor_producer.tolist(), graph.tensor_output.tolist(), strict=True)
    for tensor, (op, output) in enumerate(pairs):
        node = nodes[op]
        if output < 0 or graph.tensor_alloc_bytes[tensor] <= 0 or node.op in library:
            continue
        is_reference = any(each.is_ref for each in op_definition(node.op, node.name).output_arg)
        result[tensor] = not is_reference and output_dtype(node, library, output) in SENT
    return result


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
    producer, output = prepared.built.graph.tensor_producer, prepared.built.graph.tensor_output

    def name_of(tensor: int, copy: int) -> str:
        node: str = origin_of[int(producer[tensor])].node
        return node if plan.copies[copy].tensor < 0 else f"{node}:{output[tensor]}"

    def reads_of(reads: Mapping[int, int]) -> dict[str, int]:
        return {name_of(tensor, copy): copy for tensor, copy in reads.items()}

    copies = [
        NodeCopy(
            (origin_of[each.op].function, origin_of[each.op].node),
            reads_of(each.reads),
            origin_of[each.after].node if each.after >= 0 else "",
            -1 if each.tensor < 0 else int(output[each.tensor]),
        )
        for each in plan.copies
    ]
    reads = {
        (origin_of[op].function, origin_of[op].node): reads_of(of_op)
        for op, of_op in plan.reads.items()
    }
    return MemoryPlan(copies, reads)


NAME = "made to fit"
WORTH = 0.95
"""A plan has to promise a step of this share of the best one that fits without."""
MOST, MOST_TIMES = 3, 4
"""So many placements are made to fit, those whose steps would be fastest without a limit; and so
often a plan is made for the best of them."""
LOST, SPARED = 0.93, 0.96
"""What a plan that finds no room on its device may use of that, the next time; and how much of a
device's memory an allocator may have given out in chunks for it to have found room."""


def within_memory(found: Found, options: OptimizeOptions, progress: Progress) -> Found | None:
    """The same step with a memory plan; None where that is no help, or nobody wants it."""
    prepared, searched = found.prepared, found.searched
    if options.problem.memory_plan == "none" or prepared.unplanned is not None:
        return None
    if prepared.source.origins is not None and prepared.source.saved_model_dir:
        return None  # its step is in no model that is written
    best = math.inf if searched.best is None else searched.best.step_seconds
    promising = [
        (seconds, number, each)
        for number, each in enumerate({each.key: each for each in searched.everything}.values())
        if isinstance(each.outcome, Infeasible)
        and each.outcome.reason == "memory"
        and (seconds := unlimited_seconds(prepared.problem, each.device_of_op)) < WORTH * best
    ]
    if searched.result.interrupted:
        return None
    if not promising:
        return _in_its_order(found, options)
    progress.say("looking for what a device may compute again instead of keeping it")
    with progress.working():
        until = time.monotonic() + PARTS["making_it_fit"].of(options.budget_seconds)
        may = may_change(prepared)
        plans: list[tuple[float, int, Planned, Candidate]] = []
        for _, number, each in sorted(promising)[:MOST]:
            plan = fitted(prepared.problem, each.device_of_op, may, until)
            if plan is not None and plan.step_seconds < WORTH * best:
                plans.append((plan.step_seconds, number, plan, each))
        if not plans:
            return None
        _, _, plan, candidate = min(plans)
        return _that_finds_room(found, options, plan, candidate, may)


def _that_finds_room(
    found: Found, options: OptimizeOptions, plan: Planned, candidate: Candidate, may: MayChange
) -> Found | None:
    """The step with a plan that fits as it is written, and runs; None where none of a few does."""
    prepared, problem = found.prepared, found.prepared.problem
    best = math.inf if found.searched.best is None else found.searched.best.step_seconds
    is_tried = prepared.is_present and options.measures_machine
    for _ in range(MOST_TIMES):
        planned = _found(found, _prepared_with(prepared, plan, options), candidate, best)
        if planned is None:
            return None
        share = np.ones(prepared.problem.num_devices)
        if plan.rank is not None:  # edges can't say all of a sequence
            peaks = np.maximum(_peaks_in_order(planned), 1)
            share = np.minimum(prepared.problem.usable_bytes() / peaks, 1.0)
        if np.all(share >= 1.0):
            if not is_tried or _runs(planned):
                return planned
            share *= LOST
        memory = (problem.device_memory_bytes * share * NEAR).astype(np.int64)
        problem = dataclasses.replace(problem, device_memory_bytes=memory)
        until = time.monotonic() + PARTS["making_it_fit"].of(options.budget_seconds)
        again = fitted(problem, candidate.device_of_op, may, until)
        if again is None:
            return None
        plan = again
    return None


def _runs(planned: Found) -> bool:
    """Whether the planned step finds room on its devices: gaps take some, now more, now less."""
    prepared, placed = planned.prepared, _placed(planned)
    graphs = {NAME: prepared.placed_run_graph(placed.device_of_op)}
    peaks = measure_peaks(graphs, prepared.training_run(), prepared.cluster, StepLimits())[NAME]
    if isinstance(peaks, Infeasible):
        return peaks.reason != "memory"
    memory = {device.name: device.memory_bytes for device in prepared.cluster.devices}
    return all(peak.counted <= SPARED * memory.get(name, math.inf) for name, peak in peaks.items())


def _placed(planned: Found) -> Candidate:
    return next(each for each in planned.searched.candidates if each.name == NAME)


def _peaks_in_order(planned: Found) -> LongArray:
    """i8[D]: what the planned step holds in the order that is written."""
    peaks = simulated_in_order(planned.prepared, _placed(planned).device_of_op).peak_bytes
    return np.array([*peaks.values()], dtype=np.int64)


def _in_its_order(found: Found, options: OptimizeOptions) -> Found | None:
    """The step in the order in which it fits, where it would not in TensorFlow's own; else None."""
    prepared, best = found.prepared, found.searched.best
    is_asked = options.problem.device_memory and prepared.is_present and prepared.order is None
    if best is None or not is_asked:
        return None
    usable = prepared.problem.usable_bytes()
    if np.all(predicted_peaks(prepared, best.device_of_op) <= usable):
        return None
    in_order = dataclasses.replace(prepared, order=OwnOrder())
    fits = np.all(predicted_peaks(in_order, best.device_of_op) <= usable)
    return Found(in_order, found.searched) if fits else None


def unlimited_seconds(problem: Problem, device_of_op: IntArray) -> float:
    """What a placement i4[N] would take if all devices had memory enough."""
    enough = np.full_like(problem.device_memory_bytes, np.iinfo(np.int64).max // 4)
    unlimited = dataclasses.replace(problem, device_memory_bytes=enough)
    return simulated(unlimited, device_of_op).outcome.step_seconds


def _prepared_with(
    prepared: PreparedModel, planned: Planned, options: OptimizeOptions
) -> PreparedModel:
    """The model with the plan written into it, read and priced again."""
    split = prepared.split
    problem = dataclasses.replace(
        options.problem,
        planned=as_nodes(prepared, planned.plan),
        num_shards=1 if split is None else split.num_shards,
    )
    made = prepare(problem, prepared.costs.source != "analytic", earlier=prepared)
    numbers = _numbers(made, prepared, planned.plan)
    graph, pinned = made.problem.graph, made.problem.pinned_device
    on_host = source_ops(made, prepared).output >= 0  # these ops are ours: no constraint is of them
    groups = np.where(on_host, -1, graph.colocation_group).astype(np.int32)
    changed = dataclasses.replace(
        made.problem,
        graph=dataclasses.replace(graph, colocation_group=groups),
        pinned_device=np.where(on_host, -1, pinned).astype(np.int32),
        start_rank=None if planned.rank is None else planned.rank[numbers],
    )
    return at_most(dataclasses.replace(made, problem=changed), options.max_devices)


def _found(found: Found, made: PreparedModel, best: Candidate, without: float) -> Found | None:
    """What is known of the step, each placement with its copies beside their ops."""
    old = found.prepared
    source = source_ops(made, old)
    hosts = np.array([host_of(old.problem, each) for each in range(old.problem.num_devices)])
    candidates = []
    for each in (dataclasses.replace(best, name=NAME), *found.searched.baselines):
        placed = each.device_of_op[source.op]
        on_host = (source.output >= 0) & (hosts[placed] >= 0)
        placed = np.where(on_host, hosts[placed], placed).astype(np.int32)
        outcome = simulated(made.problem, placed).outcome
        candidates.append(Candidate(each.name, placed, outcome))
    if candidates[0].step_seconds >= WORTH * without:
        return None
    searched: Searched = dataclasses.replace(
        found.searched,
        baselines=candidates[1:],
        candidates=[*candidates[1:], candidates[0]],
        fewer=[],
        unsplit=found.searched.unsplit
        or Unsplit(old.problem, found.searched.baselines, found.searched.everything),
    )
    return Found(dataclasses.replace(made, order=OwnOrder(), steps_read=old.steps_read), searched)


def before_plan(prepared: PreparedModel, device_of_op: IntArray) -> Simulated | None:
    """A placement i4[N] without the memory plan that its step has; None where there is none."""
    old = prepared.unplanned
    if old is None:
        return None
    source, without = source_ops(prepared, old), np.array(old.given)
    without[source.op[~source.is_copy]] = device_of_op[~source.is_copy]
    return simulated(old.problem, without)


def plan_facts(
    prepared: PreparedModel, device_of_op: IntArray, before: Simulated | None
) -> JsonObject | None:
    """report.json's `memory_plan` of a placement i4[N], which is `before` without the plan."""
    if before is None or prepared.unplanned is None:
        return None
    source = source_ops(prepared, prepared.unplanned)
    again, on_host = source.is_copy & (source.output < 0), source.output >= 0
    seconds = prepared.problem.op_seconds[np.arange(len(device_of_op)), device_of_op]
    graph = prepared.problem.graph
    is_read = on_host[graph.use_op] & (graph.tensor_output[graph.use_tensor] >= 0)
    waiting = np.unique(graph.use_tensor[is_read])
    return {
        "tensors_on_host": len(waiting),
        "bytes_on_host": int(graph.tensor_bytes[waiting].sum()),
        "ops_run_again": int((again & (seconds > 0)).sum()),
        "more_work": float(seconds[again].sum() / seconds[~again].sum()),
        "peak_bytes_without": before.peak_bytes,
    }


def _numbers(made: PreparedModel, old: PreparedModel, plan: CopyPlan) -> IntArray:
    """i4[N']: the op of the model without a plan that each op is; of a copy, N and its number.

    Copies of one op are named in the order of their numbers.
    """
    source, output = source_ops(made, old), old.problem.graph.tensor_output
    copies = by_key(
        ((copy.op, -1 if copy.tensor < 0 else int(output[copy.tensor])), old.problem.num_ops + n)
        for n, copy in enumerate(plan.copies)
    )
    names = made.problem.graph.op_names
    numbers, copied = np.array(source.op), np.flatnonzero(source.is_copy).tolist()
    for op in sorted(copied, key=lambda op: (len(names[op]), names[op])):
        numbers[op] = copies[int(source.op[op]), int(source.output[op])].pop(0)
    return numbers


class SourceOps(NamedTuple):
    """Of each op of a model with a plan, what it is in the model without.

    Attributes:
      op: i4[N'] it itself, or what it runs again, or hands an output back of.
      is_copy: bool[N'] whether it is there for the plan.
      output: i4[N'] the index of the output that it hands back, else -1.
    """

    op: IntArray
    is_copy: BoolArray
    output: IntArray


def source_ops(made: LoadedModel, old: LoadedModel) -> SourceOps:
    """Finds them by the marks in the graph."""
    number = dict(
        zip((n.name for n in old.flat.graph_def.node), old.built.op_of_node.tolist(), strict=True)
    )
    source = np.zeros(made.built.graph.num_ops, dtype=np.int32)
    is_copy = np.zeros(made.built.graph.num_ops, dtype=bool)
    output = np.full(made.built.graph.num_ops, -1, dtype=np.int32)
    for node, origin, op in zip(
        made.flat.graph_def.node, made.flat.origins, made.built.op_of_node.tolist(), strict=True
    ):
        name = node.name
        if MARK in node.attr:
            name = name.removesuffix(origin.node) + node.attr[MARK].s.decode()
            is_copy[op] = True
            output[op] = node.attr[KEPT].i if KEPT in node.attr else -1
        source[op] = number[name]
    return SourceOps(source, is_copy, output)
