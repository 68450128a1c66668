"""A step that doesn't fit, or would be slower for a limit of memory, is made to fit."""

import dataclasses
import math
import time

import numpy as np

from graphs.op_graph import BoolArray, IntArray
from graphs.problem import Infeasible
from graphs.protos import JsonObject
from rewrite.memory.recompute import MARK
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.memory.memory_plan import Planned, as_nodes, fitted, may_change
from tfplace.choosing.memory.predicted_peaks import predicted_peaks
from tfplace.choosing.memory_limit import at_most
from tfplace.choosing.outcomes import Found
from tfplace.choosing.scheduling.model_order import OwnOrder
from tfplace.choosing.unsplit_baselines import Unsplit
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.progress import Progress
from tfplace.simulation.simulated import simulated

NAME = "made to fit"
WORTH = 0.95
"""A plan has to promise a step of this share of the best one that fits without."""
MOST = 3
"""So many placements are made to fit, those whose steps would be fastest without a limit."""


def within_memory(found: Found, options: OptimizeOptions, progress: Progress) -> Found | None:
    """The same step with a memory plan; None where that is no help, or nobody wants it.

    Args:
      found: what the search has found, fitting or not.
      options: all of them.
      progress: is told what goes on.
    """
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
        and (seconds := _unlimited_seconds(prepared, each)) < WORTH * best
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
        return _found(found, _prepared_with(prepared, plan, options), candidate, best)


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


def _unlimited_seconds(prepared: PreparedModel, candidate: Candidate) -> float:
    """What a placement would take if all devices had memory enough."""
    problem = prepared.problem
    enough = np.full_like(problem.device_memory_bytes, np.iinfo(np.int64).max // 4)
    unlimited = dataclasses.replace(problem, device_memory_bytes=enough)
    return simulated(unlimited, candidate.device_of_op).outcome.step_seconds


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
    return at_most(made, options.max_devices)


def _found(found: Found, made: PreparedModel, best: Candidate, without: float) -> Found | None:
    """What is known of the step, each placement with its copies beside their ops."""
    old = found.prepared
    source, _ = source_ops(made, old)
    candidates = [
        Candidate(each.name, placed, simulated(made.problem, placed).outcome)
        for each in (dataclasses.replace(best, name=NAME), *found.searched.baselines)
        for placed in (each.device_of_op[source],)
    ]
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


def plan_facts(prepared: PreparedModel, device_of_op: IntArray) -> JsonObject | None:
    """report.json's `memory_plan`; None where nothing runs again.

    Args:
      prepared: the model with its plan.
      device_of_op: i4[N] a placement.
    """
    old = prepared.unplanned
    if old is None:
        return None
    source, again = source_ops(prepared, old)
    seconds = prepared.problem.op_seconds[np.arange(len(device_of_op)), device_of_op]
    without = np.array(old.given)
    without[source] = device_of_op
    peaks = simulated(old.problem, without).peak_bytes
    return {
        "ops_run_again": int((again & (seconds > 0)).sum()),
        "more_work": float(seconds[again].sum() / seconds[~again].sum()),
        "peak_bytes_without": peaks,
    }


def source_ops(made: LoadedModel, old: LoadedModel) -> tuple[IntArray, BoolArray]:
    """i4[N']: the op of the model without a plan that each op is, or runs again; which do."""
    number = dict(
        zip((n.name for n in old.flat.graph_def.node), old.built.op_of_node.tolist(), strict=True)
    )
    source = np.zeros(made.built.graph.num_ops, dtype=np.int32)
    again = np.zeros(made.built.graph.num_ops, dtype=bool)
    for node, origin, op in zip(
        made.flat.graph_def.node, made.flat.origins, made.built.op_of_node.tolist(), strict=True
    ):
        name = node.name
        if MARK in node.attr:
            name = name.removesuffix(origin.node) + node.attr[MARK].s.decode()
            again[op] = True
        source[op] = number[name]
    return source, again
