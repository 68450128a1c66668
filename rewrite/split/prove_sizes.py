"""Proves where a split step of any batch size joins, sums and cuts, at several sizes.

At one size two shards may have as many entries, so that what reads one of them for the other is
not noticed. Shards m - 1 and m differ where m is what is left over when the batch is divided.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from rewrite.split.build_step import SplitStep
from rewrite.split.decide import Decisions, decide
from rewrite.split.larger_step import larger_step
from rewrite.split.op_view import StayWhole
from rewrite.split.prove_joints import JointsProof, prove_joints
from rewrite.split.unsure_ranks import forgetting_ranks

_ROUNDS = 3
"""Sizes of one remainder that are tried: at some a number may look like another one."""


def prove_sizes(
    flat: FlatGraph,
    properties: TensorProperties,
    decisions: Decisions,
    step: SplitStep,
    count: int,
    seconds: float,
) -> JointsProof:
    """Compares a split step with the unsplit one; one of any batch size at several sizes.

    Args:
      flat, properties, decisions, step, count: as for `prove_joints`.
      seconds: after which no further size is begun.

    Raises:
      RewriteError: something stands wrong.
    """
    end = time.monotonic() + seconds
    proof = prove_joints(flat, properties, decisions, step, count)
    batches = [decisions.batch]
    for tensors, others in other_sizes(flat, decisions, count, end):
        prove_joints(flat, tensors, others, step, count)
        batches.append(others.batch)
    return dataclasses.replace(proof, batches=batches)


def other_sizes(
    flat: FlatGraph, decisions: Decisions, count: int, end: float = math.inf
) -> Iterator[tuple[TensorProperties, Decisions]]:
    """What was decided, at sizes that leave over something else; none is begun after `end`."""
    missing = set(range(1, count)) - {decisions.batch % count}
    for more in range(1, _ROUNDS * count) if decisions.takes_any_batch else ():
        left_over = (decisions.batch + more) % count
        if left_over in missing and time.monotonic() < end:
            found = _decided_at(flat, decisions, more)
            if found is not None:
                missing.remove(left_over)
                yield found


def _decided_at(
    flat: FlatGraph, decisions: Decisions, more: int
) -> tuple[TensorProperties, Decisions] | None:
    """The same decisions at another size; None where a number looks like another one there."""
    flat = forgetting_ranks(flat, decisions.unsure_ranks)
    larger = larger_step(flat, decisions.axis_of_feed, decisions.open_axes, more)
    if larger is None:
        return None
    step, properties = larger
    answers = decisions.answer_of_op
    kept = {name: each.reason for name, each in answers.items() if isinstance(each, StayWhole)}
    others = decide(
        step,
        properties,
        decisions.batch + more,
        decisions.axis_of_feed,
        kept,
        not_cut=decisions.not_cut,
    )
    if others.answer_of_op != answers or others.state_of_tensor != decisions.state_of_tensor:
        return None
    others = dataclasses.replace(others, is_open=True, open_axes=decisions.open_axes)
    return others.properties, others
