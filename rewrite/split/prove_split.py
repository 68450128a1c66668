"""All proofs of a split step: its ops, its structure, and a run of it where that is affordable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.loading.feeds import feeds_of_opened
from rewrite.pass_base import RewriteError
from rewrite.split.build_step import SplitStep
from rewrite.split.compare_runs import EQUAL, compare_runs, request_of
from rewrite.split.compare_runs_messages import RunsCompared
from rewrite.split.decide import Decisions
from rewrite.split.prove_joints import JointsProof
from rewrite.split.prove_ops import NotProven, OpsProof, prove_ops
from rewrite.split.prove_sizes import prove_sizes
from rewrite.split.state_order import require_state_order
from rewrite.split.states import shard_sizes


@dataclasses.dataclass(frozen=True)
class ProofLimits:
    """What proving a split step may take.

    Attributes:
      op_seconds: for running distinct ops.
      run_seconds: for running whole steps; 0 to run none.
      memory_bytes: of each child process; None for no limit.
      why_no_run: why no whole step is run, where run_seconds is 0.
    """

    op_seconds: float = 60.0
    run_seconds: float = 60.0
    memory_bytes: float | None = None
    why_no_run: str = "nobody asked for it"


@dataclasses.dataclass(frozen=True)
class SplitProof:
    """What was proven of a split step.

    Attributes:
      distinct_ops: how many distinct split ops there are.
      proven_ops: how many of them were run whole and in parts, and are the same.
      not_proven: the others.
      differing: what is a defect of tfplace: ops whose parts give something else, a joint that
        stands wrong, a value of a run that differs. Nothing may be emitted then.
      joints: what stands in the split step; None where it is wrong.
      run: "equal", "not equal: what", "not run: why", "most could not be compared: why".
      compared: names of the values of the runs that agree.
      not_compared: "name: why" of those that can't be compared.
      max_relative_difference: of what agrees.
      narrow_ops: {op type: how many} that were not run in float64.
      smaller_ops: as of OpsProof.
    """

    distinct_ops: int
    proven_ops: int
    not_proven: Sequence[NotProven]
    differing: Sequence[str]
    joints: JointsProof | None
    run: str
    compared: Sequence[str] = ()
    not_compared: Sequence[str] = ()
    max_relative_difference: float = 0.0
    narrow_ops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    smaller_ops: int = 0

    def report(self) -> dict[str, Any]:
        """What stands in report.json."""
        joints = None if self.joints is None else dataclasses.asdict(self.joints)
        if joints is not None:
            del joints["exact"]
        return {
            "distinct_ops": self.distinct_ops,
            "proven_ops": self.proven_ops,
            "smaller_ops": self.smaller_ops,
            "not_proven": [dataclasses.asdict(each) for each in self.not_proven],
            "differing": list(self.differing),
            "structure": joints,
            "run": self.run,
            "compared": len(self.compared),
            "not_compared": list(self.not_compared),
            "max_relative_difference": self.max_relative_difference,
            "not_in_float64": dict(self.narrow_ops),
        }


def prove_split(
    flat: FlatGraph,
    properties: TensorProperties,
    decisions: Decisions,
    step: SplitStep,
    num_shards: int,
    limits: ProofLimits,
    feeds: Mapping[str, np.ndarray] | None = None,
    ops: OpsProof | None = None,
) -> SplitProof:
    """Proves a split step: op by op, by its structure, and by runs of two whole steps.

    Args:
      flat: the unsplit step.
      properties: of its tensors.
      decisions: what became of each op.
      step: the split step, before it is placed.
      num_shards: M.
      limits: of time and memory.
      feeds: {tensor: array} to run with; None for random ones that fit.
      ops: what was proven of its ops; None to prove it here.

    Returns:
      What was proven; `differing` tells defects.
    """
    if ops is None:
        ops = prove_ops(flat, decisions, num_shards, limits.op_seconds, limits.memory_bytes)
    try:
        joints = prove_sizes(flat, properties, decisions, step, num_shards, limits.op_seconds / 2)
        require_state_order(flat, step)
    except RewriteError as error:
        run = "not run: its structure is wrong"
        return _proof(ops, None, RunsCompared(), run, [*ops.differing, str(error)])
    if ops.differing or limits.run_seconds <= 0:
        why = "ops differ" if ops.differing else limits.why_no_run
        return _proof(ops, joints, RunsCompared(), f"not run: {why}", ops.differing)
    if feeds is None:
        feeds = feeds_of_opened(flat, properties, flat.feeds, seed=0)
    sizes = shard_sizes(decisions.batch, num_shards)
    request = request_of(flat, properties, decisions, step, sizes, joints.exact, feeds)
    compared = compare_runs(request, limits.run_seconds, limits.memory_bytes)
    return _proof(ops, joints, compared, _run_text(compared), _differing(compared))


def _proof(
    ops: OpsProof,
    joints: JointsProof | None,
    runs: RunsCompared,
    run: str,
    differing: Sequence[str],
) -> SplitProof:
    return SplitProof(
        ops.distinct_ops, ops.proven_ops, ops.not_proven, differing, joints, run, runs.compared,
        runs.not_compared, runs.max_relative_difference, runs.narrow_ops, ops.smaller_ops,
    )  # fmt: skip


def _differing(runs: RunsCompared) -> list[str]:
    first = f"; the first op that differs: {runs.first_differing}" if runs.first_differing else ""
    return [f"{each}{first}" for each in runs.differing]


def _run_text(runs: RunsCompared) -> str:
    if runs.why_not:
        return f"not run: {runs.why_not}"
    if runs.differing:
        return f"not equal: {runs.differing[0]}"
    if len(runs.not_compared) > len(runs.compared):
        return f"most could not be compared: {runs.not_compared[0]}"
    return EQUAL
