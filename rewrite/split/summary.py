"""How a step was split, in numbers: for the report and for `tfplace inspect --shards`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from graphs.flat_graph import FlatGraph
from rewrite.split.build_step import SplitStep
from rewrite.split.decide import Decisions
from rewrite.split.op_view import Split, StayWhole


@dataclasses.dataclass(frozen=True)
class WholeBecause:
    """Ops of one type that stay whole for one reason, although they read something split.

    Attributes:
      op_type: as TensorFlow calls it.
      count: how many there are.
      reason: why they stay whole.
    """

    op_type: str
    count: int
    reason: str


@dataclasses.dataclass(frozen=True)
class SplitSummary:
    """How a step was split.

    Attributes:
      sharded_ops: ops that have a copy for each shard.
      whole_ops: ops that stay one.
      sums: tensors whose terms are combined.
      joins: tensors whose parts are joined.
      cuts: whole tensors that are cut into parts.
      whole_because: why ops that read something split stay whole, the most frequent first.
    """

    sharded_ops: int
    whole_ops: int
    sums: int
    joins: int
    cuts: int
    whole_because: Sequence[WholeBecause]


def summary_of(flat: FlatGraph, decisions: Decisions, step: SplitStep) -> SplitSummary:
    """Counts what became of a step's ops."""
    answers = [(node.op, decisions.answer_of_op[node.name]) for node in flat.graph_def.node]
    reasons = Counter((op, a.reason) for op, a in answers if isinstance(a, StayWhole) and a.reason)
    num_split = sum(isinstance(answer, Split) for _, answer in answers)
    return SplitSummary(
        sharded_ops=num_split,
        whole_ops=len(answers) - num_split,
        sums=step.num_sums,
        joins=step.num_joins,
        cuts=step.num_cuts,
        whole_because=[
            WholeBecause(op, count, reason) for (op, reason), count in reasons.most_common()
        ],
    )
