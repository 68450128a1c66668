"""Proves the rules on the very ops that they split: an op's parts, put together, are its whole.

Every distinct split op of a step (type, attributes, shapes, states and known inputs) is run whole
and in parts on random inputs of its real shapes (a large one of few entries in few narrow shards),
in float64 where it has a CPU kernel for that, and what numpy makes of the parts must be the whole.
Nothing of `build_step` is used, nor are the rules: what is proven are the answers that they gave.
Of an op that runs functions the ops in them are proven so, and `prove_bodies` proves that each
shard's function has the right ones.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence

from graphs.flat_graph import FlatGraph
from graphs.host.child import ChildError, ask_child
from rewrite.split.decide import Decisions
from rewrite.split.op_case import OpCase
from rewrite.split.op_cases import op_cases
from rewrite.split.prove_ops_messages import CaseOutcome, OutcomesSoFar, ProveOpsRequest
from rewrite.split.smaller_case import smaller_cases

_CHILD = "rewrite.split.prove_ops_child"
_BATCH_BYTES = 2**26
_BATCH_CASES = 64
_MOST_CHILDREN = 8


@dataclasses.dataclass(frozen=True)
class NotProven:
    """Ops that couldn't be run whole and in parts, for one reason."""

    op_type: str
    count: int
    reason: str


@dataclasses.dataclass(frozen=True)
class OpsProof:
    """What came of proving the split ops of a step.

    Attributes:
      distinct_ops: how many distinct split ops there are.
      proven_ops: how many of them were run, and are the same in parts.
      smaller_ops: how many of these were run in few shards of few entries, or with narrow weights.
      not_proven: the others, by type and reason.
      differing: "op (type): how" of those whose parts give something else: defects of tfplace.
    """

    distinct_ops: int
    proven_ops: int
    smaller_ops: int
    not_proven: Sequence[NotProven]
    differing: Sequence[str]


def prove_ops(
    flat: FlatGraph,
    decisions: Decisions,
    num_shards: int,
    seconds: float = 60.0,
    memory_bytes: float | None = None,
) -> OpsProof:
    """Runs each distinct split op whole and in parts, in a child process.

    Args:
      flat: the unsplit step.
      decisions: what becomes of each op.
      num_shards: M.
      seconds: what has not been run by then counts as not proven.
      memory_bytes: of the child; an op that takes more counts as not proven.
    """
    cases = op_cases(flat, decisions, num_shards)
    outcomes, smaller = prove_cases(cases, seconds, memory_bytes)
    missing: Counter[tuple[str, str]] = Counter()
    differing = []
    for case, outcome in zip(cases, outcomes, strict=True):
        if outcome.differs:
            differing.append(f"{case.name} ({case.node.op}): {outcome.differs}")
        elif outcome.not_proven:
            missing[case.node.op, outcome.not_proven] += 1
    return OpsProof(
        len(cases),
        len(cases) - sum(missing.values()) - len(differing),
        smaller,
        [NotProven(op, count, why) for (op, why), count in sorted(missing.items())],
        differing,
    )


def prove_cases(
    cases: Sequence[OpCase], seconds: float, memory_bytes: float | None
) -> tuple[list[CaseOutcome], int]:
    """The outcome of each case, and how many were proven smaller; where that fails, as they are."""
    end, num_smaller = time.monotonic() + seconds, 0
    untried = [[*smaller_cases(case), case] for case in cases]
    outcomes = [CaseOutcome()] * len(cases)
    left = list(range(len(cases)))
    while left:
        tried = [untried[i].pop(0) for i in left]
        for i, outcome in zip(left, _outcomes(tried, end, memory_bytes), strict=True):
            outcomes[i] = outcome
        num_smaller += sum(outcomes[i] == CaseOutcome() and bool(untried[i]) for i in left)
        left = [i for i in left if outcomes[i] != CaseOutcome() and untried[i]]
    return outcomes, num_smaller


def _outcomes(cases: Sequence[OpCase], end: float, memory_bytes: float | None) -> list[CaseOutcome]:
    """The outcome of each case: the least work first, so that many are proven until `end`."""
    outcome_of: dict[int, CaseOutcome] = {}
    fitting = []
    for index, case in enumerate(cases):
        if memory_bytes is not None and case.num_bytes > memory_bytes / 2:
            why = f"it takes {case.num_bytes / 2**30:.1f} GiB of memory, more than there is for it"
            outcome_of[index] = CaseOutcome(not_proven=why)
        else:
            fitting.append(index)
    batches = _batches(cases, sorted(fitting, key=lambda index: cases[index].work))
    for _ in range(_MOST_CHILDREN):
        if not batches:
            break
        done, why, is_final = _ask(cases, batches, end - time.monotonic(), memory_bytes)
        for batch, outcomes in zip(batches, done, strict=False):
            outcome_of.update(zip(batch, outcomes, strict=True))
        batches = batches[len(done) :]
        if not why or not batches:
            continue
        if is_final:
            break
        failed, *batches = batches
        if len(failed) == 1:
            outcome_of[failed[0]] = CaseOutcome(not_proven=f"it ended the process: {why}")
        else:
            batches = [[index] for index in failed] + batches
    left = why if batches else ""
    return [outcome_of.get(index, CaseOutcome(not_proven=left)) for index in range(len(cases))]


def _ask(
    cases: Sequence[OpCase],
    batches: Sequence[Sequence[int]],
    seconds: float,
    memory_bytes: float | None,
) -> tuple[Sequence[Sequence[CaseOutcome]], str, bool]:
    """Outcomes of the batches that a child did, why it ended, and whether nothing more is run."""
    too_long = "the time for proving ops was used up"
    if seconds <= 0:
        return [], too_long, True
    request = ProveOpsRequest([[cases[i] for i in batch] for batch in batches], memory_bytes)
    try:
        so_far: OutcomesSoFar = ask_child(_CHILD, request, seconds)
    except ChildError as error:
        so_far = error.last_message or OutcomesSoFar()
        if error.is_timeout:
            return so_far.batches, too_long, True
        return so_far.batches, str(error), False
    return so_far.batches, so_far.ended, False


def _batches(cases: Sequence[OpCase], order: Sequence[int]) -> list[list[int]]:
    """Cases that are run together: a few, and all of them small."""
    batches: list[list[int]] = []
    held = 0
    for index in order:
        num_bytes = cases[index].num_bytes
        if not batches or len(batches[-1]) == _BATCH_CASES or held + num_bytes > _BATCH_BYTES:
            batches.append([])
            held = 0
        batches[-1].append(index)
        held += num_bytes
    return batches
