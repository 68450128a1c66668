"""The emitted model loaded again: does it compute the same, and where does it really run?"""

import contextlib
import dataclasses
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from graphs.cluster import Cluster
from graphs.counted import counted
from graphs.errors import VerificationError
from graphs.host.freed_memory import uncollected
from graphs.host.own_network import environment
from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from graphs.protos import JsonObject
from graphs.source_model import SourceModel
from rewrite.emit_forms import tags_of
from rewrite.memory.planned_model import check_planned
from rewrite.model_builder import TAGS, BuiltModel
from rewrite.order.order_edges import OrderEdge
from rewrite.pass_base import RewriteError
from rewrite.prove_structure import StructureProof, prove_structure
from rewrite.split.prove.runs.compare_runs import few_entries
from rewrite.verify import NO_LIMITS, RunLimits, Verified, not_run, verify
from rewrite.verify_messages import LOAD, RemoteTasks
from tfplace.bounds.any_split import RangeBound, any_split_bounds
from tfplace.budget import PARTS
from tfplace.interruption import Interruption, InThread, interruptible
from tfplace.measurement.device_name import device_key
from tfplace.measurement.trace import devices_used as devices_in
from tfplace.measurement.trace import trace_saved_model
from tfplace.measurement.training_run import exactly
from tfplace.measurement.workers import start_workers
from tfplace.preparing.prepare import PreparedModel
from tfplace.preparing.steps_read import StepsRead
from tfplace.progress import Progress
from tfplace.proving.run_estimate import Decision, RunEstimate, decide, estimate_run
from tfplace.proving.split_proof import BegunProof, Written, proven_split, require_unsplit_fails

_log = logging.getLogger("tfplace")


TRACE_BEGIN_SECONDS, TRACE_SECONDS_PER_OP = 3.0, 1.2e-3
"""What tracing the emitted model takes at least; it is not begun where less is left."""
NOT_VERIFIED = not_run("interrupted before the comparison was done")


@dataclasses.dataclass(frozen=True)
class Proof:
    """What the emitted model is worth.

    Attributes:
      verified: given and emitted model compared.
      lower_bound_seconds: of every placement; None where it was not computed.
      any_split: bounds for every number of shards, where several were tried.
      devices_used: {device: {"ops": n, "seconds": t}} of a traced run of the emitted model.
      interrupted: whether something was left out for a Ctrl-C or SIGTERM.
    """

    verified: Verified
    lower_bound_seconds: float | None
    devices_used: Mapping[str, Mapping[str, float]]
    interrupted: bool
    any_split: Sequence[RangeBound] = ()


@dataclasses.dataclass(frozen=True)
class Emitted:
    """What was written.

    Attributes:
      device_of_op: i4[N] the placement.
      directory: where it lies.
      is_traced: whether to find out by a traced run which devices really work.
      built: what was made of a model that is no SavedModel, before it was placed.
      order: the order edges that were written.
    """

    device_of_op: IntArray
    directory: Path
    is_traced: bool
    built: BuiltModel | None = None
    order: Sequence[OrderEdge] = ()


@uncollected()
def prove(
    prepared: PreparedModel,
    emitted: Emitted,
    begun: BegunProof,
    wanted: str,
    budget_seconds: float,
    progress: Progress | None = None,
    seconds: float = math.inf,
) -> Proof:
    """Compares the emitted model with the given one, and bounds what was reachable.

    The structure is always proven; after Ctrl-C whatever takes long is left out.

    Args:
      prepared: the model as it came, and its problem.
      begun: what has begun beside writing it.
      wanted: as for --verify.
      budget_seconds: of the search.
      seconds: what may be taken by all that isn't the proof by structure, or was asked for.

    Raises:
      VerificationError: the emitted model is or computes something else.
    """
    progress, end = progress or Progress(), time.monotonic() + max(seconds, 0.0)
    progress.say("proving that only devices have changed")
    with interruptible() as interruption, progress.working():
        structure = proven_structure(
            prepared.source,
            emitted.directory,
            emitted.built,
            emitted.order,
            None if prepared.unplanned is None else prepared.unplanned.source,
        )
        proving = 0.0 if prepared.split is None else PARTS["comparing_beside_split"].of()
        left = end - time.monotonic() - proving
        comparison = interruption.unless_seen(
            lambda: _compared_run(prepared, emitted, wanted, budget_seconds, progress, left),
            NOT_VERIFIED,
        )
        if comparison.differing:  # worse than no placed model: nothing is left of it
            raise VerificationError(
                "comparing the emitted model with the model as it came: found "
                f"{len(comparison.differing)} differences, the first: {comparison.differing[0]}; "
                "wanted equal values; nothing was written; please report it with the model"
            )
        split = None
        if prepared.split is not None:
            progress.say("proving that the split step computes what the unsplit one does")
            left = end - time.monotonic()
            whole, shards = prepared.split.decisions, prepared.split.num_shards
            share = few_entries(whole, shards) / whole.batch
            _, run = _decision(prepared, emitted, wanted, budget_seconds, left, share)
            is_loaded = any(f"({LOAD}" in name for name in comparison.compared)
            written = Written(emitted.directory, _emitted_tags(prepared.source), is_loaded)
            split = proven_split(
                prepared.split, written, prepared.feeds, run, left, interruption, begun.ops
            )
        comparison = dataclasses.replace(
            comparison, structure=True, structure_compared=structure.compared, split=split
        )
        bound, any_split = _bounds(prepared.steps_read, begun.bound, interruption, end)
        nothing: tuple[JsonObject, str] = {}, ""
        used, failure = nothing
        tracing = TRACE_BEGIN_SECONDS + TRACE_SECONDS_PER_OP * prepared.problem.num_ops
        if emitted.is_traced and end - time.monotonic() >= tracing:
            progress.say("tracing the written model: which devices really work")
            used, failure = interruption.unless_seen(
                lambda: devices_used(prepared, emitted.directory, max(end - time.monotonic(), 0.0)),
                nothing,
            )
            comparison = dataclasses.replace(
                comparison, fails="" if used else failure or comparison.fails
            )
        return Proof(comparison, bound, used, interruption.seen, any_split)


def _bounds(
    steps: StepsRead | None, begun: InThread[float | None], interruption: Interruption, end: float
) -> tuple[float | None, Sequence[RangeBound]]:
    """Of every placement, and for every number of shards; each in the time until `end`."""
    least = PARTS["bound"].least
    bound = interruption.unless_seen_by(begun, None, max(end - time.monotonic(), least))
    if steps is None or not steps.is_priced:
        return bound, ()
    any_split: Sequence[RangeBound] = interruption.unless_seen_in_time(
        lambda: any_split_bounds(steps.problems, steps.batch),
        (),
        max(end - time.monotonic(), least),
    )
    return bound, any_split


def proven_structure(
    source: SourceModel,
    directory: Path,
    built: BuiltModel | None = None,
    order: Sequence[OrderEdge] = (),
    unplanned: SourceModel | None = None,
) -> StructureProof:
    """Compares the emitted model with the given one, op by op; nothing is run.

    Args:
      source, directory, built, order: as for `prove_structure`.
      unplanned: the model without its memory plan, if it has one: all that runs again is taken out
        and compared with its originals.

    Raises:
      VerificationError: more than devices and this order differs.
    """
    as_built = None if built is None else built.saved_model
    try:
        proof = prove_structure(source, directory, as_built, order)
        if unplanned is None:
            return proof
        number = counted(check_planned(unplanned, source), "op")
        again = f"{number} that run again, add in turn or hand a value back, with the same"
        return dataclasses.replace(proof, compared=(*proof.compared, again))
    except RewriteError as error:
        raise VerificationError(
            f"proving that only devices have changed: {error}; nothing was written; please "
            "report it with the model"
        ) from error


def _compared_run(
    prepared: PreparedModel,
    emitted: Emitted,
    wanted: str,
    budget_seconds: float,
    progress: Progress,
    seconds: float,
) -> Verified:
    """Runs both models where that was asked for, or is thought to cost little."""
    estimate, decision = _decision(prepared, emitted, wanted, budget_seconds, seconds)
    if decision.limits is None:
        comparison = not_run(decision.why)
    else:
        progress.say("running the given and the placed model to compare what they compute")
        comparison = verified(prepared, emitted.directory, emitted.device_of_op, decision.limits)
    return dataclasses.replace(comparison, estimates=dataclasses.asdict(estimate))


def _decision(
    prepared: PreparedModel,
    emitted: Emitted,
    wanted: str,
    budget_seconds: float,
    seconds: float,
    share: float = 1.0,
) -> tuple[RunEstimate, Decision]:
    """What running whole steps takes; whether they are run and compared, under which limits."""
    estimate = estimate_run(prepared, emitted.device_of_op, share)
    free = psutil.virtual_memory().available
    return estimate, decide(estimate, wanted, budget_seconds, free, seconds)


def verified(
    prepared: PreparedModel, emitted: Path, device_of_op: IntArray, limits: RunLimits = NO_LIMITS
) -> Verified:
    """Runs the given and the emitted model on the same inputs and compares."""
    placed = (
        prepared.placed_run_graph(device_of_op) if prepared.source.origins is not None else None
    )
    with tasks_of(prepared.cluster, prepared.is_present) as tasks:
        unsplit = None if prepared.split is None else prepared.split.given
        given = (prepared.unplanned or prepared).source
        return verify(given, emitted, prepared.feeds, tasks, placed, limits, unsplit)


@contextlib.contextmanager
def tasks_of(cluster: Cluster, is_present: bool) -> Iterator[RemoteTasks]:
    """The cluster's tasks; workers without addresses live as long as the context."""
    names = cluster.device_names
    keys = [device_key(name) for name in names]
    if not is_present or not keys[0].job:
        yield RemoteTasks()
        return
    with contextlib.ExitStack() as stack:
        addresses, network = [device.address for device in cluster.devices], dict[str, str]()
        if not addresses[0]:
            network = environment(os.getpid())
            pool = stack.enter_context(start_workers(cluster.num_devices))
            addresses = [pool.addresses[key.task] for key in keys]
        tasks: dict[str, dict[int, str]] = {}
        for key, address in zip(keys, addresses, strict=True):
            tasks.setdefault(key.job, {})[key.task] = address
        yield RemoteTasks(names[0], tasks, network)


def devices_used(
    prepared: PreparedModel, emitted: Path, seconds: float = math.inf
) -> tuple[JsonObject, str]:
    """{device: {"ops": n, "seconds": t}} from a trace of the emitted model, loaded again.

    The text says why it fails, if it does for other reasons than time or memory. A training step
    that was made for the search is not in a SavedModel that had none; its first signature is
    traced then.
    """
    ends = _ends_of_emitted(prepared.source, prepared.feeds)
    if ends is None:
        return {}, ""
    limits = dataclasses.replace(exactly(2, warmup_steps=2), all_seconds=seconds)
    tags = _emitted_tags(prepared.source)
    traces = trace_saved_model(str(emitted), tags, ends, prepared.cluster, limits)
    if isinstance(traces, Infeasible):
        require_unsplit_fails(prepared, emitted, tags, traces, limits)
        _log.warning("tracing the emitted model: %s", traces.message)
        return {}, "" if traces.reason in ("timeout", "memory") else traces.message
    return {
        name: {"ops": use.num_ops, "seconds": use.seconds}
        for name, use in devices_in(traces).items()
    }, ""


def _ends_of_emitted(
    source: SourceModel, feeds: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Sequence[str]] | None:
    """What is fed and fetched."""
    if source.origins is None or not source.saved_model_dir:
        return feeds, source.fetches
    for signature in source.signatures.values():
        inputs = [spec.tensor for spec in signature.inputs.values()]
        if all(tensor in feeds for tensor in inputs):
            fetches = [spec.tensor for spec in signature.outputs.values()]
            return {tensor: feeds[tensor] for tensor in inputs}, fetches
    return None


def _emitted_tags(source: SourceModel) -> tuple[str, ...]:
    """The tags of the MetaGraphDef that has the run; a model that came as a graph has only one."""
    return tuple(tags_of(source)) if source.saved_model_dir else TAGS
