"""The split step proven against the unsplit one: op by op, by its structure, by a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import psutil

from graphs.errors import VerificationError
from rewrite.pass_base import RewriteError
from rewrite.split.prove_joints import prove_joints
from rewrite.split.prove_split import ProofLimits, SplitProof, prove_split
from rewrite.split.split_model import SplitModel
from tfplace.choosing.run_estimate import Decision
from tfplace.interruption import Interruption

OPS_SECONDS = 60.0
OPS_SHARE = 0.6
"""The most that running single ops may take, in seconds and of the time that is left."""


def proven_split(
    split: SplitModel,
    feeds: Mapping[str, Any],
    run: Decision,
    seconds: float,
    interruption: Interruption,
) -> Mapping[str, Any]:
    """Proves a split step; after Ctrl-C by its structure alone.

    Args:
      split: the step.
      feeds: {tensor: array} of a run.
      run: whether whole steps are run and compared, too, and under which limits.
      seconds: what is left for all of it.
      interruption: knows of Ctrl-C.

    Returns:
      What report.json says of it.

    Raises:
      VerificationError: the split step is or computes something else.
    """
    of_ops = min(OPS_SECONDS, max(OPS_SHARE * seconds, 0.0))
    free = psutil.virtual_memory().available / 2
    if run.limits is None:
        limits = ProofLimits(of_ops, 0.0, free, run.why)
    else:
        most = min(run.limits.all_seconds, max(seconds - of_ops, 0.0))
        limits = ProofLimits(
            of_ops, most if math.isfinite(most) else 600.0, run.limits.memory_bytes or free
        )

    def proof() -> SplitProof:
        return prove_split(
            split.flat,
            split.properties,
            split.decisions,
            split.step,
            split.num_shards,
            limits,
            feeds,
        )

    whole = interruption.unless_seen(proof, None)
    if whole is None:
        _require_joints(split)
        return {"structure": True, "run": "not run: interrupted", "distinct_ops": None}
    if whole.differing:
        raise _defect(f"{len(whole.differing)} differences, the first: {whole.differing[0]}")
    return whole.report()


def _require_joints(split: SplitModel) -> None:
    try:
        prove_joints(split.flat, split.properties, split.decisions, split.step, split.num_shards)
    except RewriteError as error:
        raise _defect(str(error)) from error


def _defect(what: str) -> VerificationError:
    return VerificationError(
        f"proving that the split step computes what the unsplit one does: found {what}; wanted "
        "none; nothing was written; please report it with the model, and leave --shards out"
    )


def split_proof_sentence(proof: Mapping[str, Any]) -> str:
    """What was proven, for a person."""
    if proof["distinct_ops"] is None:
        return "the split step has the structure that was decided; interrupted before more"
    joints = "joins, sums and cuts stand where they should"
    if not proof["proven_ops"]:
        text = f"{joints}; none of {proof['distinct_ops']:,} distinct split ops was run in parts"
    else:
        text = (
            f"{proof['proven_ops']:,} of {proof['distinct_ops']:,} distinct split ops give in "
            f"parts what they give whole; {joints}"
        )
    if proof["run"].startswith("not run"):
        return f"{text}; whole steps {proof['run']}"
    return f"{text}; two steps in float64: {proof['run']}, {proof['compared']:,} values"
