"""How a step was split, in numbers: for the report and for `tfplace inspect --shards`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from graphs.flat_graph import FlatGraph
from graphs.pricing.node_work import NodeWork
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
      whole_ops: ops that stay one, or that every shard computes whole for itself.
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
    num_split = sum(isinstance(a, Split) and not a.is_repeated for _, a in answers)
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


def split_share(flat: FlatGraph, decisions: Decisions, asked: NodeWork) -> float:
    """The share of a step's floating-point operations that lies in split ops.

    Args:
      flat: the unsplit step.
      decisions: what becomes of each op.
      asked: what its nodes compute; a loop counts with what is inside it.
    """
    times = 1.0 if asked.times is None else asked.times
    flops = np.nan_to_num(asked.work.flops) * times
    np.add.at(flops, asked.inner.node, asked.inner.flops * asked.inner.times)
    is_split = [isinstance(decisions.answer_of_op[n.name], Split) for n in flat.graph_def.node]
    total = float(flops.sum())
    return float(flops[np.array(is_split, bool)].sum()) / total if total else 0.0
