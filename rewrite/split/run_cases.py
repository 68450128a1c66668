"""Runs cases of split ops in child processes: small ones together; what ends a child, alone."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence

from graphs.host.asked_child import AskedChild, ChildError, ask_child
from rewrite.split.op_case import OpCase
from rewrite.split.prove_ops_messages import CaseOutcome, OutcomesSoFar, ProveOpsRequest
from rewrite.split.smaller_case import smaller_cases

_CHILD = "rewrite.split.prove_ops_child"
_BATCH_BYTES = 2**27
_BATCH_CASES = 64
_MOST_CHILDREN = 8


@dataclasses.dataclass(frozen=True)
class BegunCases(contextlib.AbstractContextManager["BegunCases"]):
    """Cases that are being run; what still goes on ends with the block.

    Attributes:
      cases: all of them.
      memory_bytes: of a child.
      child: runs the smallest versions of them; None where nothing has begun.
    """

    cases: Sequence[OpCase]
    memory_bytes: float | None
    child: AskedChild | None = None

    def __exit__(self, *error: object) -> None:
        if self.child is not None:
            self.child.close()


def begun_cases(cases: Sequence[OpCase], memory_bytes: float | None) -> BegunCases:
    """Begins what `prove_cases` does."""
    first = [[*smaller_cases(case), case][0] for case in cases]
    _, batches = _planned(first, memory_bytes)
    child = AskedChild(_CHILD) if batches else None
    if child is not None:
        child.ask(_request(first, batches, memory_bytes))
    return BegunCases(cases, memory_bytes, child)


def prove_cases(
    cases: Sequence[OpCase],
    seconds: float,
    memory_bytes: float | None,
    child: AskedChild | None = None,
) -> tuple[list[CaseOutcome], int]:
    """The outcome of each case, and how many were proven smaller; where that fails, as they are.

    Args:
      cases: what is proven.
      seconds: what has not been run by then counts as not proven.
      memory_bytes: of a child.
      child: of BegunCases.
    """
    end, num_smaller = time.monotonic() + seconds, 0
    untried = [[*smaller_cases(case), case] for case in cases]
    outcomes = [CaseOutcome()] * len(cases)
    left = list(range(len(cases)))
    while left:
        tried = [untried[i].pop(0) for i in left]
        found, child = _outcomes(tried, end, memory_bytes, child), None
        for i, outcome in zip(left, found, strict=True):
            outcomes[i] = outcome
        num_smaller += sum(outcomes[i] == CaseOutcome() and bool(untried[i]) for i in left)
        left = [i for i in left if outcomes[i] != CaseOutcome() and untried[i]]
    return outcomes, num_smaller


def _outcomes(
    cases: Sequence[OpCase],
    end: float,
    memory_bytes: float | None,
    child: AskedChild | None = None,
) -> list[CaseOutcome]:
    """The outcome of each case; those of the first batches are asked of a child that has begun."""
    outcome_of, batches = _planned(cases, memory_bytes)
    for _ in range(_MOST_CHILDREN):
        if not batches:
            break
        request = _request(cases, batches, memory_bytes)
        (done, why, is_final), child = _ask(request, end - time.monotonic(), child), None
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


def _planned(
    cases: Sequence[OpCase], memory_bytes: float | None
) -> tuple[dict[int, CaseOutcome], list[list[int]]]:
    """Outcomes of what doesn't fit; batches of the others, the least work first: many are proven
    until the time is over."""
    outcome_of: dict[int, CaseOutcome] = {}
    for index, case in enumerate(cases):
        if memory_bytes is not None and case.num_bytes > memory_bytes / 2:
            why = f"it takes {case.num_bytes / 2**30:.1f} GiB of memory, more than there is for it"
            outcome_of[index] = CaseOutcome(not_proven=why)
    fitting = [index for index in range(len(cases)) if index not in outcome_of]
    return outcome_of, _batches(cases, sorted(fitting, key=lambda index: cases[index].work))


def _request(
    cases: Sequence[OpCase], batches: Sequence[Sequence[int]], memory_bytes: float | None
) -> ProveOpsRequest:
    return ProveOpsRequest([[cases[i] for i in batch] for batch in batches], memory_bytes)


def _ask(
    request: ProveOpsRequest, seconds: float, child: AskedChild | None
) -> tuple[Sequence[Sequence[CaseOutcome]], str, bool]:
    """Outcomes of the batches that a child did, why it ended, and whether nothing more is run.

    Args:
      request: what it is asked for.
      seconds: after which it is ended.
      child: one that was asked already; None to start one.
    """
    too_long = "the time for proving ops was used up"
    if seconds <= 0:
        return [], too_long, True
    try:
        so_far: OutcomesSoFar = (
            ask_child(_CHILD, request, seconds) if child is None else child.answer(seconds)
        )
    except ChildError as error:
        so_far = error.last_message or OutcomesSoFar()
        if error.is_timeout:
            return so_far.batches, too_long, True
        return so_far.batches, str(error), False
    finally:
        if child is not None:
            child.close()  # it still runs where its time is over
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
