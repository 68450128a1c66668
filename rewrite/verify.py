"""Proves that the emitted model computes what the model as it came does.

Both are loaded and run in a child process on the same inputs from the same variable values:
the run that was placed, and every signature. What TensorFlow 2 saved is loaded by
tf.saved_model.load, with and without variables on their devices; all else runs in a v1 Session,
too. Where they disagree, the original runs again, and what it computes differently the second
time is listed, not compared.
"""

import dataclasses
import functools
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.building.op_outputs import of_unknown_op
from graphs.errors import ModelError
from graphs.function_library import bodies
from graphs.host.asked_child import ChildError, ask_child
from graphs.host.scratch import scratch_directory
from graphs.loading.runnable_copy import runnable_copy, serialized_without_effects
from graphs.loading.sniff import sniff
from graphs.protos import GraphDef, JsonObject
from graphs.source_model import SourceModel
from rewrite.verify_messages import (
    Check,
    CheckOutcome,
    ChecksSoFar,
    ModelRun,
    OutcomeKind,
    RemoteTasks,
    SavedModel,
    VerifyRequest,
)
from rewrite.verify_plan import Plan

TIMEOUT_SECONDS = 600.0
BUDGET_SECONDS = 60.0
"""After the first check, which is always made, the others are made as long as this suffices."""
EQUAL = "equal"
HERE = RemoteTasks()
_ONLY_THAT_FAILS = {"split_failed": "the split step", "placed_failed": "the emitted model"}
_WHY_NOT = {"given_failed": "the model as it came fails: ", "ended": "it was ended: "}
_RANDOM = "it differs between two runs of the model as it came"
_GROWN = "rounding errors alone change it as much"
_CHILD = "rewrite.verify_child"
_RUNS = ("given", "placed", "unsplit")  # of a Check
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
      not_compared: "name: why" of what could not be, one for each reason: it changes from run to
        run, the original itself fails, or its devices need a cluster.
      differing: "name: how" of what disagrees, or fails only in the emitted model.
      structure: whether both were compared op by op, and nothing but devices differs.
      structure_compared: what was compared there, a few words for each kind of thing.
      run: "equal", "not run: why" or "ended: why": what became of comparing the run itself.
      estimates: {"seconds": x, "bytes": y} that comparing runs was thought to take; None where
        nobody asked.
      split: what was proven of a split step (rewrite.split.prove_split); None of a whole one.
      fails: why the step could not be run wherever that was tried; "" where it ran, or was not.
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
    split: JsonObject | None = None
    fails: str = ""


def not_run(why: str) -> Verified:
    """Nothing was run."""
    return Verified(False, 0.0, (), (f"the run: {why}",), run=f"not run: {why}")


def verify(
    source: SourceModel,
    output_dir: str | os.PathLike[str],
    feeds: Mapping[str, Any],
    tasks: RemoteTasks = HERE,
    placed_graph_def: GraphDef = None,
    limits: RunLimits = NO_LIMITS,
    unsplit: SourceModel | None = None,
) -> Verified:
    """Runs the given and the emitted model and compares.

    Args:
      feeds: {tensor "op:i": array} of the run.
      tasks: of a cluster that has the devices; HERE for this process, where devices that are not
        there are replaced.
      placed_graph_def: the placed run graph; needed for a run whose training step was made for
        the search and so isn't in the emitted model.
      limits: of time and memory.
      unsplit: the model as it came where `source` is that with a split step, which has to run
        wherever the unsplit one does; all signatures but the run's have to give the same.

    Raises:
      ModelError: the model as it came can't be loaded, since its files are damaged.
    """
    graphs = [meta_graph.graph_def for meta_graph in sniff(output_dir).proto.meta_graphs]
    devices = {n.device for graph in graphs for _, nodes in bodies(graph) for n in nodes}
    if not tasks.addresses and any("/job:" in device for device in devices):
        return not_run("its devices are of other tasks, which are not here")
    with scratch_directory() as scratch:
        made = os.path.abspath(output_dir)
        plan = Plan(source, made, Path(scratch), bool(tasks.addresses), unsplit)
        request = VerifyRequest(
            checks=_on_copies(plan.checks(feeds, placed_graph_def), scratch),
            tasks=tasks,
            num_cpus=1 + max((int(m[1]) for d in devices if (m := _CPU.search(d))), default=0),
            narrowest=_narrowest_float(plan.graph_def),
            budget_seconds=limits.budget_seconds or BUDGET_SECONDS,
        )
        outcomes = [
            dataclasses.replace(outcome, why=of_unknown_op(outcome.why))
            for outcome in _run_checks(request, limits)
        ]
    for outcome in outcomes:
        if outcome.kind == "damaged":  # placed, it would be useless
            raise ModelError(
                f"loading the model {source.path!r} as it came: its variables are damaged "
                f"({outcome.why}); copy the whole model again"
            )
    return _summed_up(outcomes, [check.is_run for check in request.checks], plan.left_out)


def _on_copies(checks: Iterable[Check], scratch: str) -> list[Check]:
    """The checks on models that act in their own process only."""

    copy_of = functools.cache(lambda directory: runnable_copy(directory, scratch))

    @functools.cache  # a run that several checks make stays one
    def copied(run: ModelRun | None) -> Any:
        if run is None:
            return None
        if isinstance(run.model, SavedModel):
            changed: Any = {"directory": copy_of(run.model.directory)}
        else:
            changed = {"graph_def": serialized_without_effects(run.model.graph_def)}
        return dataclasses.replace(run, model=dataclasses.replace(run.model, **changed))

    return [
        dataclasses.replace(each, **{name: copied(getattr(each, name)) for name in _RUNS})
        for each in checks
    ]


def _narrowest_float(graph_def: GraphDef) -> str:
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
            so_far = _asked(rest, seconds, limits.memory_bytes)
        except ChildError as failure:
            error, so_far = failure, failure.last_message or ChecksSoFar()
        outcomes += so_far.outcomes
        if error is not None and error.is_timeout and so_far.outcomes:
            continue  # the others took the time that this check needs
        if len(outcomes) == len(request.checks):
            break  # it may have died while TensorFlow cleaned up
        label = request.checks[len(outcomes)].label
        if error is None or error.gave_up:
            why = "it ended before it was done" if error is None else str(error)
            later = request.checks[len(outcomes) + 1 :]
            outcomes.append(CheckOutcome(label, "ended", why))
            outcomes += [CheckOutcome(check.label, "left_out", why) for check in later]
            break
        kind: OutcomeKind = "placed_failed" if so_far.runs_placed else "given_failed"
        if error.is_timeout:
            kind = "ended"
        elif kind == "given_failed" and _only_split_fails(rest, seconds, limits.memory_bytes):
            kind = "split_failed"
        outcomes.append(CheckOutcome(label, kind, str(error)))
    return outcomes


def _asked(request: VerifyRequest, seconds: float, memory_bytes: float | None) -> ChecksSoFar:
    """What a child answers, in the network of the tasks."""
    environment = request.tasks.environment
    answer: ChecksSoFar = ask_child(_CHILD, request, seconds, memory_bytes, environment)
    return answer


def _only_split_fails(request: VerifyRequest, seconds: float, memory_bytes: float | None) -> bool:
    """Whether the unsplit step of the first check, which ended the child, ends none."""
    unsplit = request.checks[0].unsplit
    if unsplit is None:
        return False
    check = dataclasses.replace(request.checks[0], given=unsplit, placed=unsplit, unsplit=None)
    try:
        so_far = _asked(dataclasses.replace(request, checks=[check]), seconds, memory_bytes)
    except ChildError:
        return False
    return [outcome.kind for outcome in so_far.outcomes] == ["compared"]


def _summed_up(
    outcomes: Sequence[CheckOutcome], is_run: Sequence[bool], left_out: Sequence[str]
) -> Verified:
    compared: list[str] = []
    left: dict[str, list[str]] = {}
    differing: list[str] = []
    largest = 0.0
    for outcome in outcomes:
        if outcome.kind in _ONLY_THAT_FAILS:
            differing.append(
                f"{outcome.label}: only {_ONLY_THAT_FAILS[outcome.kind]} fails: {outcome.why}"
            )
        elif outcome.kind != "compared":
            left.setdefault(_WHY_NOT.get(outcome.kind, "") + outcome.why, []).append(outcome.label)
        for value in outcome.values:
            name = f"{outcome.label}: {value.name}"
            if value.is_random or value.is_grown:
                left.setdefault(_RANDOM if value.is_random else _GROWN, []).append(name)
                continue
            compared.append(name)
            largest = max(largest, value.max_abs_diff)
            if not value.is_equal:
                differing.append(f"{name}: differs by {value.max_abs_diff:.3g}")
    more = {
        why: f" and {len(names) - 1} more" if len(names) > 1 else "" for why, names in left.items()
    }
    not_compared = [*left_out, *(f"{names[0]}{more[why]}: {why}" for why, names in left.items())]
    of_run = [outcome for outcome, is_it in zip(outcomes, is_run, strict=True) if is_it]
    run = _run_text(of_run, differing, left_out)
    failed = [outcome.why for outcome in of_run if outcome.kind == "given_failed"]
    return Verified(
        outputs_equal=run == EQUAL,
        max_abs_diff=largest,
        compared=tuple(compared),
        not_compared=tuple(not_compared),
        differing=tuple(differing),
        run=run,
        fails="" if any(outcome.values for outcome in of_run) else next(iter(failed), ""),
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
