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
from collections import Counter
from collections.abc import Sequence

from graphs.flat_graph import FlatGraph
from rewrite.split.decide import Decisions
from rewrite.split.op_cases import op_cases
from rewrite.split.run_cases import BegunCases, begun_cases, prove_cases


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
    begun: BegunCases | None = None,
) -> OpsProof:
    """Runs each distinct split op whole and in parts, in a child process.

    Args:
      flat: the unsplit step.
      decisions: what becomes of each op.
      num_shards: M.
      seconds: what has not been run by then counts as not proven.
      memory_bytes: of the child; an op that takes more counts as not proven.
      begun: what `begun_ops` made of the same; its limit of memory counts.
    """
    if begun is None:
        begun = BegunCases(op_cases(flat, decisions, num_shards), memory_bytes)
    cases = begun.cases
    outcomes, smaller = prove_cases(cases, seconds, begun.memory_bytes, begun.child)
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


def begun_ops(
    flat: FlatGraph, decisions: Decisions, num_shards: int, memory_bytes: float | None = None
) -> BegunCases:
    """Begins what `prove_ops` does, in a child that works beside whatever comes before that."""
    return begun_cases(op_cases(flat, decisions, num_shards), memory_bytes)
