"""A step that doesn't fit, or would be slower for a limit of memory, is made to fit."""

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphs.building.op_outputs import op_definition, output_dtype
from graphs.by_key import by_key
from graphs.errors import MemoryLimitError
from graphs.names import data_inputs, parse_input
from graphs.op_graph import BoolArray, IntArray, LongArray
from graphs.op_types import ALIASES, PYTHON, REACHES_OUT
from graphs.problem import Infeasible, Problem
from graphs.protos import JsonObject, NodeDef, OpDef
from rewrite.memory.recompute import KEPT, MARK, MemoryPlan, NodeCopy
from rewrite.memory.sums_in_turn import IN_TURN, added_in_turn
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.memory.fit import NEAR, Planned, fitted, least_fitted
from tfplace.choosing.memory.large_sums import large_lists, large_sums
from tfplace.choosing.memory.predicted_peaks import predicted_peaks
from tfplace.choosing.memory.rematerialize import CopyPlan, MayChange, host_of
from tfplace.choosing.memory_limit import Advice, at_most, lacking_bytes, why_nothing_fits
from tfplace.choosing.outcomes import Found
from tfplace.choosing.scheduling.anchors import anchors_of
from tfplace.choosing.scheduling.model_order import (
    OwnOrder,
    bodies_of,
    joined_ops,
    may_be_waited_for,
    simulated_in_order,
)
from tfplace.choosing.unsplit_baselines import Unsplit
from tfplace.measurement.run_measurement import measure_peaks
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.progress import Progress
from tfplace.simulation.simulated import Simulated, simulated


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
    if any(node.op.startswith("Inplace") for node in prepared.flat.graph_def.node):
        repeat[:] = send[:] = False  # they change what they read, though TensorFlow calls them pure
    late = np.zeros(graph.num_ops, dtype=bool)  # what runs once a gradient of a bias is there
    late[[second for _, second in joined_ops(prepared) if "Grad" in graph.op_types[second]]] = True
    for source, target in zip(producer.tolist(), user.tolist(), strict=True):
        late[target] |= late[source]
    return MayChange(repeat, anchors.may_hold & ~late, bodies, send)


def _plain(prepared: LoadedModel) -> BoolArray:
    """bool[T]: numbers that TensorFlow can send, and that nothing writes into."""
    graph, library = prepared.built.graph, prepared.flat.library
    nodes = dict(zip(prepared.built.op_of_node.tolist(), prepared.flat.graph_def.node, strict=True))
    result = np.zeros(graph.num_tensors, dtype=bool)
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
    return MemoryPlan(copies, reads, added_in_turn(prepared.source.graph_def))


SENT = frozenset((1, 2, 9, 10, 14, 19))
"""DataTypes of what may wait on a host: floats, int64 and bool, which lie in a GPU's memory."""
NAME = "made to fit"
WORTH = 0.95
"""A plan has to promise a step of this share of the best one that fits without."""
MOST, MOST_TIMES = 3, 4
"""So many placements are made to fit, those whose steps would be fastest without a limit; and so
often a plan is made for the best of them."""
LESS = 0.98
"""Where sums in turn lower no peak to this share, plans without them are made, too."""
NO_ROOM = "memory", "crash"
"""Reasons of a run that failed for want of memory: some kernels crash where they get none."""
TRIED_SECONDS = 20.0
"""As long a plan runs that has to find room: gaps between tensors may grow from step to step."""
LOST, SPARED = 0.93, 0.96
"""What a plan that finds no room on its device may use of that, the next time; and how much of a
device's memory an allocator may have given out in chunks for it to have found room."""


def within_memory(found: Found, options: OptimizeOptions, progress: Progress) -> Found | None:
    """The same step with a memory plan; None where that is no help, or nobody wants it."""
    prepared, searched = found.prepared, found.searched
    if not _may_be_planned(prepared, options):
        return None
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
    fastest = [each for _, _, each in sorted(promising)[:MOST]]
    with progress.working():
        on_host = [with_variables_on_host(prepared.problem, each) for each in fastest]
        known = {each.key for each in searched.everything}
        on_host = [each for each in on_host if each.key not in known]
        able = [each for each in on_host if each.step_seconds < WORTH * best]
        plain: Found | None = None
        if able:
            quickest = min(able, key=lambda each: each.step_seconds)
            best, candidates = quickest.step_seconds, [*searched.candidates, quickest]
            plain = Found(prepared, dataclasses.replace(searched, candidates=candidates))
        fastest += [each for each in on_host if math.isinf(each.step_seconds)]
        # Updates amid the backward pass leave gaps in memory: lists are kept where a plan does.
        made = (_planned(plain or found, options, fastest, best, lists) for lists in (False, True))
        return next(filter(None, made), plain)


def _planned(
    found: Found, options: OptimizeOptions, fastest: Sequence[Candidate], best: float, lists: bool
) -> Found | None:
    """The step with a plan for the best of a few placements; None where none is fast enough.

    Args:
      best: seconds of the best step that fits without.
      lists: whether gradients are used as they come; then None where no list keeps them.
    """
    prepared = found.prepared
    until = time.monotonic() + PARTS["making_it_fit"].of(options.budget_seconds)
    base = with_sums_in_turn(prepared, options.problem, lists)
    bases = [] if lists else [prepared]
    if base is not None:
        base = at_most(base, options.max_devices)
        tried = [_found(found, base, each, in_order=False) for each in fastest]
        worth = [each for each in tried if _placed(each).step_seconds < WORTH * best]
        in_turn = [each for each in worth if _finds_room(each, options)]
        if in_turn:
            return min(in_turn, key=lambda each: _placed(each).step_seconds)
        helps = any(_holds_less(*each) for each in zip(tried, fastest, strict=True))
        bases = [base] if helps else [*bases, base]
    plans: list[tuple[float, int, Planned, Candidate, PreparedModel]] = []
    pairs = [(step, may_change(step)) for step in bases]
    for number, ((step, may), each) in enumerate(itertools.product(pairs, fastest)):
        now = time.monotonic()  # the fastest without a limit gets most of what is left
        until_next = now + (until - now) / min(len(bases) * len(fastest) - number, 2)
        placed = each.device_of_op[source_ops(step, prepared).op]
        plan = fitted(step.problem, placed, may, until_next)
        if plan is not None and plan.step_seconds < WORTH * best:
            plans.append((plan.step_seconds, number, plan, each, step))
    if not plans:
        return None
    _, _, plan, candidate, step = min(plans)
    return _that_finds_room(found, options, step, plan, candidate)


def nothing_fits(
    found: Found, options: OptimizeOptions, lacking_in_turn: Mapping[int, float] = {}
) -> MemoryLimitError:
    """The error of a step that fits no device, with the least that it needs with a memory plan.

    Args:
      lacking_in_turn: {number of shards: bytes that they lack one after another, in order}.
    """
    prepared, searched = found.prepared, found.searched
    candidates, planned = searched.everything, None
    lacking = [each for each in candidates if 0 < lacking_bytes(each, prepared.problem) < math.inf]
    if lacking and _may_be_planned(prepared, options) and not searched.result.interrupted:
        until = time.monotonic() + PARTS["making_it_fit"].of(options.budget_seconds)
        changed = (with_sums_in_turn(prepared, options.problem, lists) for lists in (True, False))
        base = next(filter(None, changed), prepared)
        op = source_ops(base, prepared).op
        for known in sorted(lacking, key=lambda each: lacking_bytes(each, prepared.problem)):
            # Of one over several devices much may be received, which no op makes again.
            placed = known.device_of_op[op]
            planned = least_fitted(base.problem, placed, may_change(base), until)
            if planned is not None:
                candidates = [known]
                break
    smaller = any(spec.shape and spec.shape[0] != 1 for spec in prepared.flat.feeds)
    advice = Advice(is_model=True, has_smaller_batch=smaller)
    plan = None if planned is None else planned.simulated
    text = why_nothing_fits(candidates, prepared.problem, lacking_in_turn, advice, plan)
    return MemoryLimitError(text)


def _may_be_planned(prepared: PreparedModel, options: OptimizeOptions) -> bool:
    """Whether a plan is wanted, and the step is in the model that is written."""
    is_wanted = options.problem.memory_plan != "none" and prepared.unplanned is None
    is_own = prepared.source.origins is None or not prepared.source.saved_model_dir
    return is_wanted and is_own


def with_variables_on_host(problem: Problem, known: Candidate) -> Candidate:
    """A placement with the variables of GPUs, and what updates them, on the GPUs' hosts.

    A step reads each variable once: what a link takes for that is often less than making again what
    does not fit beside an optimizer's state (Ren et al., ZeRO-Offload, USENIX ATC 2021).
    """
    graph, placed = problem.graph, known.device_of_op
    holds = graph.op_persistent_bytes > 0
    groups = np.unique(graph.colocation_group[holds])
    moves = holds | (np.isin(graph.colocation_group, groups) & (graph.colocation_group >= 0))
    hosts = np.array([host_of(problem, device) for device in range(problem.num_devices)])[placed]
    moves &= (hosts >= 0) & problem.allowed()[np.arange(graph.num_ops), hosts]
    device_of_op = np.where(moves, hosts, placed).astype(np.int32)
    outcome = simulated(problem, device_of_op).outcome
    return Candidate(f"{known.name}, variables on the host", device_of_op, outcome)


def with_sums_in_turn(
    prepared: PreparedModel, options: ProblemOptions, lists: bool
) -> PreparedModel | None:
    """The model with its large sums added in turn, read and priced again; None: it has none.

    Args:
      lists: whether large lists are read past, too; then None where there are none.
    """
    past = large_lists(prepared) if lists else []
    sums = [*large_sums(prepared), *past]
    if lists and not past:
        return None
    return _read_again(prepared, MemoryPlan(sums=sums), options) if sums else None


def _that_finds_room(
    found: Found, options: OptimizeOptions, base: PreparedModel, plan: Planned, candidate: Candidate
) -> Found | None:
    """The step with a plan that fits as it is written, and runs; None where none of a few does.

    Args:
      base: the step, perhaps with sums in turn, that the plan is of.
    """
    best = math.inf if found.searched.best is None else found.searched.best.step_seconds
    problem, placed = base.problem, candidate.device_of_op[source_ops(base, found.prepared).op]
    may = may_change(base)
    for _ in range(MOST_TIMES):
        planned = _found(found, _prepared_with(base, plan, options), candidate)
        outcome, share = _placed(planned).outcome, np.ones(problem.num_devices)
        if isinstance(outcome, Infeasible):  # read again, it may hold a little more
            peaks = np.maximum(outcome.peak_bytes, 1)
            share = np.minimum(base.problem.usable_bytes() / peaks, 1.0)
            if np.all(share >= 1.0):
                return None
        elif outcome.step_seconds >= WORTH * best:
            return None
        elif plan.rank is not None:  # edges can't say all of a sequence
            peaks = np.maximum(_peaks_in_order(planned), 1)
            share = np.minimum(base.problem.usable_bytes() / peaks, 1.0)
        if np.all(share >= 1.0):
            if _finds_room(planned, options):
                return planned
            share *= LOST
        memory = (problem.device_memory_bytes * share * NEAR).astype(np.int64)
        problem = dataclasses.replace(problem, device_memory_bytes=memory)
        until = time.monotonic() + PARTS["making_it_fit"].of(options.budget_seconds)
        again = fitted(problem, placed, may, until)
        if again is None:
            return None
        plan = again
    return None


def _finds_room(planned: Found, options: OptimizeOptions) -> bool:
    """Whether the planned step runs, where that can be tried and runs are to be measured."""
    is_tried = planned.prepared.is_present and options.measures_machine
    return not is_tried or _runs(planned)


def _runs(planned: Found) -> bool:
    """Whether the planned step finds room on its devices: gaps take some, now more, now less."""
    prepared, placed = planned.prepared, _placed(planned)
    graphs = {NAME: prepared.placed_run_graph(placed.device_of_op)}
    run, cluster = prepared.training_run(), prepared.cluster
    peaks = measure_peaks(graphs, run, cluster, StepLimits(), TRIED_SECONDS)[NAME]
    if isinstance(peaks, Infeasible):
        return peaks.reason not in NO_ROOM
    memory = {device.name: device.memory_bytes for device in prepared.cluster.devices}
    return all(peak.counted <= SPARED * memory.get(name, math.inf) for name, peak in peaks.items())


def _holds_less(planned: Found, before: Candidate) -> bool:
    """Whether sums in turn lower the peak of a placement."""
    lowest = np.array(_placed(planned).outcome.peak_bytes)
    return bool(np.any(lowest < LESS * np.array(before.outcome.peak_bytes)))


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
    made = _read_again(prepared, as_nodes(prepared, planned.plan), options.problem)
    source = source_ops(made, prepared)
    numbers = _numbers(made, source, prepared, planned.plan)
    graph, pinned = made.problem.graph, made.problem.pinned_device
    on_host = source.output >= 0  # these ops are ours: no constraint is of them
    groups = np.where(on_host, -1, graph.colocation_group).astype(np.int32)
    changed = dataclasses.replace(
        made.problem,
        graph=dataclasses.replace(graph, colocation_group=groups),
        pinned_device=np.where(on_host, -1, pinned).astype(np.int32),
        start_rank=None if planned.rank is None else planned.rank[numbers],
    )
    return at_most(dataclasses.replace(made, problem=changed), options.max_devices)


def _read_again(
    prepared: PreparedModel, plan: MemoryPlan, options: ProblemOptions
) -> PreparedModel:
    split, is_timed = prepared.split, prepared.costs.source != "analytic"
    shards = 1 if split is None else split.num_shards
    problem = dataclasses.replace(options, planned=plan, num_shards=shards)
    return prepare(problem, is_timed, earlier=prepared.unplanned or prepared)


def _found(found: Found, made: PreparedModel, best: Candidate, in_order: bool = True) -> Found:
    """What is known of the step, each placement with its copies beside their ops.

    Args:
      in_order: whether it fits in its own sequence alone. The edges that say so also keep Grappler
        from joining small sums, so that last bits differ.
    """
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
    searched: Searched = dataclasses.replace(
        found.searched,
        baselines=candidates[1:],
        candidates=[*candidates[1:], candidates[0]],
        fewer=[],
        unsplit=found.searched.unsplit
        or Unsplit(old.problem, found.searched.baselines, found.searched.everything),
    )
    order = OwnOrder() if in_order else old.order
    return Found(dataclasses.replace(made, order=order, steps_read=old.steps_read), searched)


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
    again, on_host = source.is_copy & (source.output < 0) & ~source.adds, source.output >= 0
    seconds = prepared.problem.op_seconds[np.arange(len(device_of_op)), device_of_op]
    placed, op_seconds = before.known_schedule().device_of_op, before.problem.op_seconds
    without = op_seconds[np.arange(len(placed)), placed].sum()
    graph = prepared.problem.graph
    is_read = on_host[graph.use_op] & (graph.tensor_output[graph.use_tensor] >= 0)
    waiting = np.unique(graph.use_tensor[is_read])
    return {
        "tensors_on_host": len(waiting),
        "bytes_on_host": int(graph.tensor_bytes[waiting].sum()),
        "sums_in_turn": len(added_in_turn(prepared.source.graph_def, lists=False)),
        "lists_in_turn": len(added_in_turn(prepared.source.graph_def, lists=True)),
        "ops_run_again": int((again & (seconds > 0)).sum()),
        "more_work": max(float(seconds.sum() / without) - 1.0, 0.0),
        "peak_bytes_without": before.peak_bytes,
    }


def _numbers(
    made: PreparedModel, source: "SourceOps", old: PreparedModel, plan: CopyPlan
) -> IntArray:
    """i4[N']: the op of the model without a plan that each op is; of a copy, N and its number.

    Copies of one op are named in the order of their numbers.
    """
    output = old.problem.graph.tensor_output
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
      adds: bool[N'] whether it adds two terms of a sum, itself or as a copy of what does.
    """

    op: IntArray
    is_copy: BoolArray
    output: IntArray
    adds: BoolArray


def source_ops(made: LoadedModel, old: LoadedModel) -> SourceOps:
    """Finds them by the marks in the graph."""
    number = dict(
        zip((n.name for n in old.flat.graph_def.node), old.built.op_of_node.tolist(), strict=True)
    )
    source = np.zeros(made.built.graph.num_ops, dtype=np.int32)
    is_copy = np.zeros(made.built.graph.num_ops, dtype=bool)
    adds = np.zeros_like(is_copy)
    output = np.full(made.built.graph.num_ops, -1, dtype=np.int32)
    meant: dict[str, str] = {}  # what each op that a plan adds stands for
    for node, origin in zip(made.flat.graph_def.node, made.flat.origins, strict=True):
        mark = MARK if MARK in node.attr else IN_TURN
        if mark in node.attr:
            prefix = node.name.removesuffix(origin.node)
            meant[node.name] = prefix + node.attr[mark].s.decode()
    for node, op in zip(made.flat.graph_def.node, made.built.op_of_node.tolist(), strict=True):
        name = node.name
        while name not in number:
            name = meant[name]
        is_copy[op], adds[op] = name != node.name, IN_TURN in node.attr
        output[op] = node.attr[KEPT].i if KEPT in node.attr else -1
        source[op] = number[name]
    return SourceOps(source, is_copy, output, adds)
