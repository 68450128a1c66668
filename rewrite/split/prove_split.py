"""All proofs of a split step: its ops, its structure, and a run of it where that is affordable."""

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.flat_graph import FlatGraph
from graphs.loading.feeds import feeds_of_opened
from graphs.protos import Json
from rewrite.pass_base import RewriteError
from rewrite.split.decide.decide import Decisions
from rewrite.split.prove.ops.prove_ops import OpsProof, prove_ops
from rewrite.split.prove.runs.compare_runs import EQUAL, compare_runs, few_entries, request_of
from rewrite.split.prove.runs.messages import NO_TABLES, RunsCompared, TableStart
from rewrite.split.prove.structure.check_resharding import JointsProof, prove_sizes
from rewrite.split.reading.state_order import require_state_order
from rewrite.split.split_step import SplitStep


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
      ops: of the ops that are split.
      joints: what stands in the split step; None where it is wrong.
      run: "equal", "not equal: what", "not run: why", "most could not be compared: why".
      differing: what is a defect of tfplace: ops whose parts give something else, a joint that
        stands wrong, a value of a run that differs. Nothing may be emitted then.
      runs: what came of comparing whole steps.
      run_batch: of how many entries these were; 0 where none was run.
    """

    ops: OpsProof
    joints: JointsProof | None
    run: str
    differing: Sequence[str] = ()
    runs: RunsCompared = dataclasses.field(default_factory=RunsCompared)
    run_batch: int = 0

    def report(self) -> dict[str, Json]:
        """What stands in report.json."""
        joints = None if self.joints is None else dataclasses.asdict(self.joints)
        if joints is not None:
            del joints["exact"]
        return {
            "distinct_ops": self.ops.distinct_ops,
            "proven_ops": self.ops.proven_ops,
            "exact_ops": self.ops.exact_ops,
            "smaller_ops": self.ops.smaller_ops,
            "not_proven": [dataclasses.asdict(each) for each in self.ops.not_proven],
            "differing": list(self.differing),
            "structure": joints,
            "run": self.run,
            "run_batch": self.run_batch,
            "compared": len(self.runs.compared),
            "not_compared": list(self.runs.not_compared),
            "max_relative_difference": self.runs.max_relative_difference,
            "not_in_float64": dict(self.runs.narrow_ops),
        }


def prove_split(
    flat: FlatGraph,
    decisions: Decisions,
    step: SplitStep,
    num_shards: int,
    limits: ProofLimits,
    feeds: Mapping[str, np.ndarray] | None = None,
    ops: OpsProof | None = None,
    tables: TableStart = NO_TABLES,
) -> SplitProof:
    """Proves a split step: op by op, by its structure, and by runs of two whole steps.

    Args:
      step: the split step, before it is placed.
      feeds: {tensor: array} to run with; None for random ones that fit.
      ops: what was proven of its ops; None to prove it here.
      tables: what fills the steps' tables.

    Returns:
      What was proven; `differing` tells defects.
    """
    if ops is None:
        ops = prove_ops(flat, decisions, num_shards, limits.op_seconds, limits.memory_bytes)
    try:
        joints = prove_sizes(flat, decisions, step, num_shards, limits.op_seconds / 2)
        require_state_order(flat, step, decisions.pieces)
    except RewriteError as error:
        run = "not run: its structure is wrong"
        return SplitProof(ops, None, run, [*ops.differing, str(error)])
    if ops.differing or limits.run_seconds <= 0:
        why = "ops differ" if ops.differing else limits.why_no_run
        return SplitProof(ops, joints, f"not run: {why}", ops.differing)
    if feeds is None:
        feeds = feeds_of_opened(flat, decisions.properties, flat.feeds, seed=0)
    end = time.monotonic() + limits.run_seconds
    for batch in dict.fromkeys((few_entries(decisions, num_shards), decisions.batch)):
        count = 0 if batch == decisions.batch else batch
        request = request_of(flat, decisions, step, joints.exact, feeds, tables, count)
        compared = compare_runs(request, end - time.monotonic(), limits.memory_bytes)
        ran = 0 if compared.why_not else batch
        if ran or time.monotonic() > end:
            break  # else so few are too few for it
    return SplitProof(ops, joints, _run_text(compared), compared.differing, compared, ran)


def _run_text(runs: RunsCompared) -> str:
    if runs.why_not:
        return f"not run: {runs.why_not}"
    if runs.differing:
        return f"not equal: {runs.differing[0]}"
    if len(runs.not_compared) > len(runs.compared):
        return f"most could not be compared: {runs.not_compared[0]}"
    return EQUAL
