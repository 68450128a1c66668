"""The split step proven against the unsplit one: op by op, by its structure, loaded, by a run.

What of a proof needs no written model begins beside writing it, on another core: writing is
Python's work alone. The bound is compiled code in a thread, and a child runs the ops of a large
split step.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from graphs.errors import ModelError, NotProvenError, VerificationError
from graphs.problem import Infeasible
from graphs.protos import JsonObject
from rewrite.emit_forms import tags_of
from rewrite.one_of_alike import LEAST_NODES
from rewrite.pass_base import RewriteError
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.ops.prove_ops import (
    BegunCases,
    OpsProof,
    begun_cases,
    prove_norms,
    prove_ops,
)
from rewrite.split.prove.runs.compare_runs import EQUAL, table_start
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.prove.written.check_unchanged import prove_others
from rewrite.split.prove.written.prove_loads import LOADS, BegunLoad, LoadProof
from rewrite.split.prove.written.prove_written import prove_written
from rewrite.split.prove_split import ProofLimits, SplitProof, prove_split
from rewrite.split.split_model import SplitModel
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.budget import PARTS
from tfplace.interruption import Interruption, InThread
from tfplace.measurement.trace import trace_saved_model
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.prepare import PreparedModel
from tfplace.proving.run_estimate import Decision

OPS_SECONDS = PARTS["proving_ops"].of()
_log = logging.getLogger("tfplace")


@dataclasses.dataclass(frozen=True)
class Written:
    """The model that was written."""

    directory: Path  # where it lies
    tags: Sequence[str]  # of its MetaGraphDef
    is_loaded: bool  # whether TensorFlow 2 has loaded and run it already


def is_large(split: SplitModel) -> bool:
    """Whether parts of its proof are begun beside others.

    Of a smaller step whole runs are compared meanwhile, which need time and memory themselves.
    """
    return len(split.step.graph_def.node) >= LEAST_NODES


def proven_split(
    split: SplitModel,
    written: Written,
    feeds: Mapping[str, Any],
    run: Decision,
    seconds: float,
    interruption: Interruption,
    begun: BegunCases | None = None,
) -> JsonObject:
    """Proves a split step; after Ctrl-C by its structure alone. Warns of what isn't proven.

    Args:
      written: the model that has it.
      feeds: {tensor: array} of a run.
      run: whether whole steps are run and compared, too, and under which limits.
      seconds: what is left for running whole steps.
      begun: what has begun of proving its ops.

    Returns:
      What report.json says of it.

    Raises:
      VerificationError: the split step is or computes something else, or doesn't load.
      NotProvenError: nothing of it could be proven.
    """
    norms, loads = OpsProof(), None
    with contextlib.ExitStack() as beside:
        load = None
        with _told_as_defect():
            prove_written(split.source, split.step, split.outputs)
            prove_others(split.given, split.source)
        limits = _limits(run, seconds)
        ops = interruption.unless_seen(lambda: _ops(split, limits, begun), None)
        if is_large(split) and not written.is_loaded:
            # Beside what follows, but not beside the ops: two children at once hold too much.
            load = interruption.unless_seen(
                lambda: beside.enter_context(_begun_load(split, written)), None
            )
        whole = interruption.unless_seen(lambda: _proof(split, feeds, limits, ops), None)
        if whole is not None and not whole.differing:
            if not written.is_loaded:
                loads = interruption.unless_seen(lambda: _loaded(split, written, load), None)
            norms = interruption.unless_seen(
                lambda: prove_norms(
                    split.fused, split.flat, split.properties, OPS_SECONDS, _half_of_memory()
                ),
                norms,
            )
    _require_equal(ops, whole, norms)  # after Ctrl-C, too
    if whole is None or (loads is None and not written.is_loaded):
        with _told_as_defect():
            prove_joints(split.flat, split.decisions, split.step, split.num_shards)
        unproven = "interrupted before it was proven"
        report = {"structure": True, "run": "not run: interrupted", "distinct_ops": None}
    else:
        if loads is not None and loads.defect:
            raise _defect(f"a model that tf.saved_model.load doesn't load ({loads.defect})")
        of_norms = [f"{each.op_type}: {each.reason}" for each in norms.not_proven[:1]]
        unproven = "; ".join(filter(None, [_unproven(whole), *of_norms]))
        report = {
            **whole.report(),
            "norms": {"distinct": norms.distinct_ops, "proven": norms.proven_ops},
            "loads": LOADS if loads is None else loads.text,
        }
    if unproven:
        _log.warning("the split step is written, but NOT PROVEN: %s", unproven)
    return {**report, "unproven": unproven}


def _require_equal(ops: OpsProof | None, whole: SplitProof | None, norms: OpsProof) -> None:
    """Raises VerificationError where a proof, or what was done of one, found a difference."""
    for proof in (whole, ops):
        if proof is not None and proof.differing:
            raise _defect(f"{len(proof.differing)} differences, the first: {proof.differing[0]}")
    if norms.differing:
        raise _defect(f"a batch normalisation that differs: {norms.differing[0]}")


def _limits(run: Decision, seconds: float) -> ProofLimits:
    free = _half_of_memory()
    if run.limits is None:
        return ProofLimits(OPS_SECONDS, 0.0, free, run.why)
    # With --verify=run it was asked for, however much time is left.
    asked = math.isinf(run.limits.all_seconds)
    most = run.limits.seconds if asked else min(run.limits.all_seconds, max(seconds, 0.0))
    why = "the time that there was for it was used up"
    return ProofLimits(OPS_SECONDS, most, run.limits.memory_bytes or free, why)


def _ops(split: SplitModel, limits: ProofLimits, begun: BegunCases | None) -> OpsProof:
    return prove_ops(
        split.flat, split.decisions, split.num_shards, limits.op_seconds, limits.memory_bytes, begun
    )


def _proof(
    split: SplitModel, feeds: Mapping[str, Any], limits: ProofLimits, ops: OpsProof | None
) -> SplitProof:
    return prove_split(
        split.flat,
        split.decisions,
        split.step,
        split.num_shards,
        limits,
        feeds,
        ops=ops,
        tables=table_start(split.given),
    )


def _half_of_memory() -> float:
    return psutil.virtual_memory().available / 2


def _begun_load(split: SplitModel, written: Written) -> BegunLoad:
    return BegunLoad(split.given, written.directory, written.tags, _half_of_memory())


def _loaded(split: SplitModel, written: Written, begun: BegunLoad | None) -> LoadProof:
    if begun is not None:
        return begun.proof()
    with _begun_load(split, written) as load:
        return load.proof()


def _unproven(proof: SplitProof) -> str:
    """What of a step nobody has seen to compute the same; "" where all of it was.

    Raises:
      NotProvenError: that is all of it.
    """
    ops = proof.ops
    missing = sum(each.count for each in ops.not_proven)
    if not missing or proof.run == EQUAL:
        return ""
    first = max(ops.not_proven, key=lambda each: each.count)
    kinds = ", ".join(sorted({each.op_type for each in ops.not_proven})[:4])
    what = f"{missing:,} of {ops.distinct_ops:,} distinct split ops ({kinds}): {first.reason}"
    if not ops.proven_ops:
        free = psutil.virtual_memory().available / 2**30
        raise NotProvenError(
            f"proving that the split step computes what the unsplit one does: found no proof of "
            f"{what}, and whole steps {proof.run}; wanted one; nothing was written; say "
            f"--verify=run, free memory ({free:.1f} GiB are free, half of it for a proof) or "
            "processor time, or say --shards=1, which leaves the step as it is"
        )
    return f"{what}, and whole steps {proof.run}; --verify=run compares whole steps"


@contextlib.contextmanager
def _told_as_defect() -> Iterator[None]:
    try:
        yield
    except (RewriteError, ModelError) as error:
        raise _defect(str(error)) from error


def _defect(what: str) -> VerificationError:
    return VerificationError(
        f"proving that the split step computes what the unsplit one does: found {what}; wanted "
        "none; nothing was written; please report it with the model, and say --shards=1"
    )


class BegunProof(contextlib.AbstractContextManager["BegunProof"]):
    """A proof of which parts go on; what nobody has asked for by the end of the block ends with it.

    Attributes:
      bound: no placement's step is shorter.
      ops: the ops of a large split step, in a child; None where there are none, or after Ctrl-C.
    """

    def __init__(self, prepared: PreparedModel, interruption: Interruption) -> None:
        """Begins them."""
        bounded = prepared.unlimited or prepared.problem  # --max_devices chose among devices
        self.bound: InThread[float | None] = InThread(lambda: lower_bound_seconds(bounded))
        split = prepared.split
        self.ops: BegunCases | None = None
        if split is not None and is_large(split):
            cases = functools.partial(op_cases, split.flat, split.decisions, split.num_shards)
            self.ops = interruption.unless_seen(
                lambda: begun_cases(cases(), _half_of_memory()), None
            )

    def __exit__(self, *error: object) -> None:
        if self.ops is not None:
            self.ops.__exit__()


ERROR = "error"
"""Why a run is infeasible that TensorFlow ends with an error: not memory, time or a crash."""


def require_unsplit_fails(
    prepared: PreparedModel,
    emitted: Path,
    tags: Sequence[str],
    failure: Infeasible,
    limits: StepLimits,
) -> None:
    """Nothing is written that doesn't run, where the model as it came does.

    Args:
      prepared: the step, split or not.
      failure: of a real run of it.
      limits: of the unsplit step's run.

    Raises:
      VerificationError: only the split step fails.
    """
    if prepared.split is None or failure.reason != ERROR:
        return
    given, source = prepared.split.given, prepared.source
    if given.saved_model_dir:
        directory, tags, fetches = given.saved_model_dir, tuple(tags_of(given)), given.fetches
    else:
        directory, fetches = str(emitted), source.whole_fetches
    ends = prepared.feeds, fetches
    if isinstance(trace_saved_model(directory, tags, ends, prepared.cluster, limits), Infeasible):
        return
    raise VerificationError(
        f"running the written model on {prepared.cluster.name}: found that its split step fails "
        f"({failure.message}) where the unsplit one runs; wanted both to run; nothing was "
        "written; please report it with the model, and say --shards=1"
    )
