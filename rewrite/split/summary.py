"""How a step was split, in numbers: for the report and for `tfplace inspect --shards`."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of
from graphs.pricing.node_work import NodeWork
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import Split, StayWhole
from rewrite.split.split_step import SplitStep

AN_OUTPUT = "it is an output of the step"
"""Why an op stays whole that stands for what a run fetches."""


@dataclasses.dataclass(frozen=True)
class WholeBecause:
    """Ops of one type that stay whole for one reason, although they read something split."""

    op_type: str  # as TensorFlow calls it
    count: int  # how many there are
    reason: str  # why they stay whole


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
      below_ops: ops that stay whole since they only read what comes from such ops.
    """

    sharded_ops: int
    whole_ops: int
    sums: int
    joins: int
    cuts: int
    whole_because: Sequence[WholeBecause]
    below_ops: int


def below_whole(flat: FlatGraph, decisions: Decisions) -> set[str]:
    """Ops that stay whole since all that they read of the batch comes from ops that stay whole."""
    below: set[str] = set()
    apart: set[str] = set()  # from where it goes on
    for node in flat.graph_def.node:
        answer = decisions.answer_of_op[node.name]
        if not isinstance(answer, StayWhole):
            continue
        if answer.reason and answer.reason != AN_OUTPUT:
            apart.add(node.name)
        elif not apart.isdisjoint(map(op_of, data_inputs(node))):
            apart.add(node.name)
            below.update([] if answer.reason else [node.name])
    return below


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
        whole_because=[WholeBecause(op, n, reason) for (op, reason), n in reasons.most_common()],
        below_ops=len(below_whole(flat, decisions)),
    )


@dataclasses.dataclass(frozen=True)
class SplitWork:
    """Shares of a step's floating-point operations; they add up to 1.

    Attributes:
      split: in ops that have a copy for each shard.
      beside: in ops that have nothing to do with the batch, such as updates of variables.
      whole: {(op type, reason): in ops that stay whole although they read something split}.
      below: in ops that stay whole since they only read what comes from those.
    """

    split: float
    beside: float
    below: float
    whole: Mapping[tuple[str, str], float]


def split_work(flat: FlatGraph, decisions: Decisions, asked: NodeWork) -> SplitWork:
    """Where a step's floating-point operations lie.

    Args:
      asked: what its nodes compute; a loop counts with what is inside it.
    """
    times = 1.0 if asked.times is None else asked.times
    flops = np.nan_to_num(asked.work.flops) * times
    np.add.at(flops, asked.inner.node, asked.inner.flops * asked.inner.times)
    share = flops / (flops.sum() or 1.0)
    split, beside, below, whole = 0.0, 0.0, 0.0, Counter[tuple[str, str]]()
    names = below_whole(flat, decisions)
    for node, of_all in zip(flat.graph_def.node, share.tolist(), strict=True):
        answer = decisions.answer_of_op[node.name]
        if isinstance(answer, Split):
            split += of_all
        elif isinstance(answer, StayWhole) and answer.reason:
            whole[node.op, answer.reason] += of_all
        elif node.name in names:
            below += of_all
        else:
            beside += of_all
    return SplitWork(split, beside, below, whole)
