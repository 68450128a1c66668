"""Proves that the emitted model computes what the model as it came does.

Both are loaded and run in a child process on the same inputs from the same variable values:
the run that was placed, and every signature; through a v1 Session, and through
tf.saved_model.load with and without variables on their devices. Where they disagree, the
original runs again, and what it computes differently the second time is listed, not compared.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.errors import ModelError
from graphs.host.asked_child import ChildError, ask_child
from graphs.loading.sniff import sniff
from graphs.source_model import SourceModel
from rewrite.clear_devices import bodies
from rewrite.verify_messages import CheckOutcome, ChecksSoFar, OutcomeKind, VerifyRequest
from rewrite.verify_plan import Plan

TIMEOUT_SECONDS = 600.0
BUDGET_SECONDS = 60.0
"""After the first check, which is always made, the others are made as long as this suffices."""
EQUAL = "equal"
_CHILD = "rewrite.verify_child"
_CPU = re.compile(r"/(?:device:)?cpu:(\d+)$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class RunLimits:
    """What running both models may take.

    Attributes:
      seconds: a child that takes longer is ended; what is left gets another one.
      all_seconds: nothing is begun after that.
      budget_seconds: after the first check, the others are begun as long as this suffices; None
        for BUDGET_SECONDS.
      memory_bytes: a child that holds more is ended; None for no limit.
    """

    seconds: float = TIMEOUT_SECONDS
    all_seconds: float = math.inf
    budget_seconds: float | None = None
    memory_bytes: float | None = None


NO_LIMITS = RunLimits()


@dataclasses.dataclass(frozen=True)
class Verified:
    """Whether the emitted model computes what the original does.

    Attributes:
      outputs_equal: the run itself was compared, and all that was compared agrees within the
        tolerance.
      max_abs_diff: largest absolute difference in what was compared; 0.0 if bitwise equal.
      compared: one name per compared value.
      not_compared: "name: why" of what could not be: it changes from run to run, the original
        itself fails, or its devices need a cluster.
      differing: "name: how" of what disagrees, or fails only in the emitted model.
      structure: whether both were compared op by op, and nothing but devices differs.
      structure_compared: what was compared there, a few words for each kind of thing.
      run: "equal", "not run: why" or "ended: why": what became of comparing the run itself.
      estimates: {"seconds": x, "bytes": y} that comparing runs was thought to take; None where
        nobody asked.
      split: what was proven of a split step (rewrite.split.prove_split); None of a whole one.
    """

    outputs_equal: bool
    max_abs_diff: float
    compared: Sequence[str]
    not_compared: Sequence[str]
    differing: Sequence[str] = ()
    structure: bool = False
    structure_compared: Sequence[str] = ()
    run: str = "not run: nobody asked for it"
    estimates: Mapping[str, float] | None = None
    split: Mapping[str, Any] | None = None


def not_run(why: str) -> Verified:
    """Nothing was run."""
    return Verified(False, 0.0, (), (f"the run: {why}",), run=f"not run: {why}")


def verify(
    source: SourceModel,
    output_dir: str | os.PathLike[str],
    feeds: Mapping[str, Any],
    cluster_target: str = "",
    placed_graph_def: Any = None,
    limits: RunLimits = NO_LIMITS,
    unsplit: SourceModel | None = None,
) -> Verified:
    """Runs the given and the emitted model and compares.

    Args:
      source: the model as it was loaded.
      output_dir: what emit made of it.
      feeds: {tensor "op:i": array} of the run.
      cluster_target: "grpc://host:port" of a cluster that has the devices; empty for this
        process, where devices that are not there are replaced.
      placed_graph_def: the placed run graph; needed for a run whose training step was made for
        the search and so isn't in the emitted model.
      limits: of time and memory.
      unsplit: the model as it came where `source` is that with a split step, which has to run
        wherever the unsplit one does; all signatures but the run's have to give the same.

    Raises:
      ModelError: the model as it came can't be loaded, since its files are damaged.
    """
    saved_model = sniff(output_dir).proto
    graphs = [meta_graph.graph_def for meta_graph in saved_model.meta_graphs]
    devices = {n.device for graph in graphs for _, nodes in bodies(graph) for n in nodes}
    if not cluster_target and any("/job:" in device for device in devices):
        why = "devices of other tasks need the target of a session in their cluster"
        names = ["the run", *(f"signature {name}" for name in source.signatures)]
        left_out = [f"{name}: {why}" for name in names]
        return Verified(False, 0.0, (), left_out, run=f"not run: {why}")
    with tempfile.TemporaryDirectory(prefix="tfplace_") as scratch:
        made = os.path.abspath(output_dir)
        plan = Plan(source, made, Path(scratch), cluster_target, unsplit)
        request = VerifyRequest(
            checks=list(plan.checks(feeds, placed_graph_def)),
            target=cluster_target,
            num_cpus=1 + max((int(m[1]) for d in devices if (m := _CPU.search(d))), default=0),
            narrowest=_narrowest_float(plan.graph_def),
            budget_seconds=limits.budget_seconds or BUDGET_SECONDS,
            memory_bytes=limits.memory_bytes,
        )
        outcomes = _run_checks(request, limits)
    _require_undamaged(source, outcomes)
    is_run = [check.is_run for check in request.checks]
    return _summed_up(outcomes, is_run, plan.left_out)


def _narrowest_float(graph_def: Any) -> str:
    """The least precise float type that ops compute with; empty for float32 and more."""
    from tensorflow.core.framework import types_pb2

    types = {n.attr["T"].type for _, nodes in bodies(graph_def) for n in nodes if "T" in n.attr}
    narrow = (types_pb2.DT_BFLOAT16, "bfloat16"), (types_pb2.DT_HALF, "float16")
    return next((name for number, name in narrow if number in types), "")


def _run_checks(request: VerifyRequest, limits: RunLimits) -> list[CheckOutcome]:
    """Makes all checks; one that kills the child has that as its outcome."""
    outcomes: list[CheckOutcome] = []
    end = time.monotonic() + limits.all_seconds
    while len(outcomes) < len(request.checks):
        rest = dataclasses.replace(request, checks=request.checks[len(outcomes) :])
        seconds = min(limits.seconds, end - time.monotonic())
        if seconds <= 0:
            why = f"the {limits.all_seconds:.3g} s for comparing were used up"
            outcomes += [CheckOutcome(check.label, "left_out", why) for check in rest.checks]
            break
        error = None
        try:
            so_far = ask_child(_CHILD, rest, seconds)
        except ChildError as failure:
            error, so_far = failure, failure.last_message or ChecksSoFar()
        outcomes += so_far.outcomes
        if error is not None and error.is_timeout and so_far.outcomes:
            continue  # the others took the time that this check needs
        if len(outcomes) == len(request.checks):
            break  # it may have died while TensorFlow cleaned up
        label = request.checks[len(outcomes)].label
        if so_far.ended or error is None:
            why = so_far.ended or "it ended before it was done"
            later = request.checks[len(outcomes) + 1 :]
            outcomes.append(CheckOutcome(label, "ended", why))
            outcomes += [CheckOutcome(check.label, "left_out", why) for check in later]
            break
        kind: OutcomeKind = "placed_failed" if so_far.runs_placed else "given_failed"
        if error.is_timeout:
            kind = "ended"
        elif kind == "given_failed" and _only_split_fails(rest, seconds):
            kind = "split_failed"
        outcomes.append(CheckOutcome(label, kind, str(error)))
    return outcomes


def _only_split_fails(request: VerifyRequest, seconds: float) -> bool:
    """Whether the unsplit step of the first check, which ended the child, ends none."""
    unsplit = request.checks[0].unsplit
    if unsplit is None:
        return False
    check = dataclasses.replace(request.checks[0], given=unsplit, placed=unsplit, unsplit=None)
    try:
        so_far = ask_child(_CHILD, dataclasses.replace(request, checks=[check]), seconds)
    except ChildError:
        return False
    return [outcome.kind for outcome in so_far.outcomes] == ["compared"]


def _require_undamaged(source: SourceModel, outcomes: Sequence[CheckOutcome]) -> None:
    """Raises ModelError where the model can't be read as it came: placed, it would be useless."""
    for outcome in outcomes:
        if outcome.kind == "damaged":
            raise ModelError(
                f"loading the model {source.path!r} as it came: its variables are damaged "
                f"({outcome.why}); copy the whole model again"
            )


def _summed_up(
    outcomes: Sequence[CheckOutcome], is_run: Sequence[bool], left_out: Sequence[str]
) -> Verified:
    compared: list[str] = []
    not_compared = list(left_out)
    differing: list[str] = []
    largest = 0.0
    for outcome in outcomes:
        if outcome.kind == "split_failed":
            differing.append(f"{outcome.label}: only the split step fails: {outcome.why}")
        elif outcome.kind == "placed_failed":
            differing.append(f"{outcome.label}: only the emitted model fails: {outcome.why}")
        elif outcome.kind == "given_failed":
            not_compared.append(f"{outcome.label}: the model as it came fails: {outcome.why}")
        elif outcome.kind == "left_out":
            not_compared.append(f"{outcome.label}: {outcome.why}")
        elif outcome.kind == "ended":
            not_compared.append(f"{outcome.label}: it was ended: {outcome.why}")
        for value in outcome.values:
            name = f"{outcome.label}: {value.name}"
            if value.is_random:
                not_compared.append(f"{name}: it differs between two runs of the model as it came")
                continue
            if value.is_grown:
                not_compared.append(f"{name}: rounding errors alone change it as much")
                continue
            compared.append(name)
            largest = max(largest, value.max_abs_diff)
            if not value.is_equal:
                differing.append(f"{name}: differs by {value.max_abs_diff:.3g}")
    of_run = [outcome for outcome, is_it in zip(outcomes, is_run, strict=True) if is_it]
    run = _run_text(of_run, differing, left_out)
    return Verified(
        outputs_equal=run == EQUAL,
        max_abs_diff=largest,
        compared=tuple(compared),
        not_compared=tuple(not_compared),
        differing=tuple(differing),
        run=run,
    )


def _run_text(
    outcomes: Sequence[CheckOutcome], differing: Sequence[str], left_out: Sequence[str]
) -> str:
    """What became of the run itself, which may have been tried in several ways."""
    if differing:
        return f"not equal: {differing[0]}"
    values = [value for outcome in outcomes for value in outcome.values]
    if any(not value.is_random and not value.is_grown for value in values):
        return EQUAL
    if values:
        return "not run: all it computes differs between two runs of the model as it came"
    for outcome in outcomes:
        if outcome.why:
            return f"{'ended' if outcome.kind == 'ended' else 'not run'}: {outcome.why}"
    why = left_out[0].removeprefix("the run: ") if left_out else "it has no values"
    return f"not run: {why}"
