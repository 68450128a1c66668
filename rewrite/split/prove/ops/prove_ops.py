"""Proves the rules on the very ops that they split: an op's parts, put together, are its whole.

Every distinct split op of a step (type, attributes, shapes, states and known inputs) is run whole
and in parts on random inputs of its real shapes (a large one of few entries in few narrow shards),
in float64 where it has a CPU kernel for that, and what numpy makes of the parts must be the whole:
bit for bit where the op is a polynomial, of whole numbers; else but for rounding errors.
Nothing of `build_step` is used, nor are the rules: what is proven are the answers that they gave.
Of an op that runs functions the ops in them are proven so, and `prove_bodies` proves that each
shard's function has the right ones.

Small cases are run together in one child process; one that ends it, alone.
"""

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Sequence

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.asked_child import AskedChild, ChildError
from rewrite.pass_base import RewriteError
from rewrite.split.decide.decide import Decisions
from rewrite.split.prove.ops.norm_cases import NormCase, norm_cases
from rewrite.split.prove.ops.op_case import CaseOutcome, OpCase
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.ops.shrink_case import smaller_cases

_CHILD = "rewrite.split.prove.ops.child"
_BATCH_BYTES = 2**27
_BATCH_CASES = 64
_MOST_CHILDREN = 8
_TOO_LONG = "the time for proving ops was used up"
Case = OpCase | NormCase


@dataclasses.dataclass(frozen=True)
class BegunCases(contextlib.AbstractContextManager["BegunCases"]):
    """Cases that are being run; what still goes on ends with the block.

    Attributes:
      cases: all of them.
      memory_bytes: of a child.
      child: runs the smallest versions of them; None where nothing has begun.
    """

    cases: Sequence[Case]
    memory_bytes: float | None
    child: AskedChild | None = None

    def __exit__(self, *error: object) -> None:
        if self.child is not None:
            self.child.close()


def begun_cases(cases: Sequence[OpCase], memory_bytes: float | None) -> BegunCases:
    """Begins what `prove_cases` does."""
    first = [_versions(case)[0] for case in cases]
    _, batches = _planned(first, memory_bytes)
    child = _asked(first, batches, memory_bytes) if batches else None
    return BegunCases(cases, memory_bytes, child)


def _versions(case: Case) -> list[Case]:
    """The case, after smaller ones that may stand for it."""
    return [*(smaller_cases(case) if isinstance(case, OpCase) else ()), case]


def prove_cases(
    cases: Sequence[Case],
    seconds: float,
    memory_bytes: float | None,
    child: AskedChild | None = None,
) -> tuple[list[CaseOutcome], int]:
    """The outcome of each case, and how many were proven smaller; where that fails, as they are.

    Args:
      seconds: what has not been run by then counts as not proven.
      memory_bytes: of a child.
      child: of BegunCases.
    """
    end, num_smaller = time.monotonic() + seconds, 0
    untried = [_versions(case) for case in cases]
    outcomes = [CaseOutcome()] * len(cases)
    left = list(range(len(cases)))
    while left:
        tried = [untried[i].pop(0) for i in left]
        found, child = _outcomes(tried, end, memory_bytes, child), None
        for i, outcome in zip(left, found, strict=True):
            outcomes[i] = outcome
        num_smaller += sum(outcomes[i] == CaseOutcome() and bool(untried[i]) for i in left)
        left = [i for i in left if outcomes[i] != CaseOutcome() and untried[i]]
    own = {
        i: dataclasses.replace(case, is_widened=False)
        for i, case in enumerate(cases)
        if outcomes[i].not_proven and isinstance(case, OpCase) and case.may_fail_widened
    }
    if own:
        found, more = prove_cases([*own.values()], end - time.monotonic(), memory_bytes)
        for i, outcome in zip(own, found, strict=True):
            outcomes[i] = outcome
        num_smaller += more
    return outcomes, num_smaller


def _outcomes(
    cases: Sequence[Case], end: float, memory_bytes: float | None, child: AskedChild | None = None
) -> list[CaseOutcome]:
    """The outcome of each case; those of the first batches are asked of a child that has begun."""
    outcome_of, batches = _planned(cases, memory_bytes)
    for _ in range(_MOST_CHILDREN):
        if not batches:
            break
        seconds = end - time.monotonic()
        done: Sequence[Sequence[CaseOutcome]] = ()
        why, is_final = _TOO_LONG, True
        if seconds > 0:
            done, why, is_final = _answer(child or _asked(cases, batches, memory_bytes), seconds)
        child = None
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
    cases: Sequence[Case], memory_bytes: float | None
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


def _asked(
    cases: Sequence[Case], batches: Sequence[Sequence[int]], memory_bytes: float | None
) -> AskedChild:
    child = AskedChild(_CHILD)
    child.ask([[cases[i] for i in batch] for batch in batches], memory_bytes)
    return child


def _answer(child: AskedChild, seconds: float) -> tuple[Sequence[Sequence[CaseOutcome]], str, bool]:
    """Outcomes of the batches that a child did, why it ended, and whether nothing more is run."""
    try:
        with child:
            return child.answer(seconds), "", False
    except ChildError as error:
        done = error.last_message or ()
        return (done, _TOO_LONG, True) if error.is_timeout else (done, str(error), False)


def _batches(cases: Sequence[Case], order: Sequence[int]) -> list[list[int]]:
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


@dataclasses.dataclass(frozen=True)
class NotProven:
    """Ops that couldn't be run whole and in parts, for one reason."""

    op_type: str
    count: int
    reason: str


@dataclasses.dataclass(frozen=True)
class OpsProof:
    """What came of proving the split ops of a step, or its normalisations that are apart.

    Attributes:
      distinct_ops: how many distinct ones there are.
      proven_ops: how many of them were run, and are the same in parts.
      smaller_ops: how many of these were run in few shards of few entries, or with narrow weights.
      not_proven: the others, by type and reason.
      differing: "op (type): how" of those whose parts give something else: defects of tfplace.
      exact_ops: how many of the proven ones are equal bit for bit, as they had to be: polynomials
        of whole numbers. Of the others floats may be apart by rounding errors.
    """

    distinct_ops: int = 0
    proven_ops: int = 0
    smaller_ops: int = 0
    not_proven: Sequence[NotProven] = ()
    differing: Sequence[str] = ()
    exact_ops: int = 0


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
      seconds: what has not been run by then counts as not proven.
      memory_bytes: of the child; an op that takes more counts as not proven.
      begun: what `begun_cases` made of the same; its limit of memory counts.
    """
    if begun is None:
        begun = BegunCases(op_cases(flat, decisions, num_shards), memory_bytes)
    return _proof(begun, seconds)


def prove_norms(
    fused: FlatGraph,
    apart: FlatGraph,
    properties: TensorProperties,
    seconds: float,
    memory_bytes: float | None = None,
) -> OpsProof:
    """Proves that what takes the place of a fused batch normalisation computes what that does.

    Values and gradients of each distinct one, by TensorFlow's own fused kernels, at the shapes of
    the step. From there on the proofs of a split step begin with the step whose normalisations are
    apart.

    Args:
      fused: the step as it was.
      apart: the step whose normalisations are taken apart; the same where there are none.
      properties: of the tensors of `apart`.
      seconds, memory_bytes: as of `prove_ops`.
    """
    try:
        cases = norm_cases(fused, apart, properties)
    except RewriteError as error:
        return OpsProof(differing=[str(error)])
    return _proof(BegunCases(cases, memory_bytes), seconds)


def _proof(begun: BegunCases, seconds: float) -> OpsProof:
    cases = begun.cases
    outcomes, smaller = prove_cases(cases, seconds, begun.memory_bytes, begun.child)
    missing: Counter[tuple[str, str]] = Counter()
    differing = []
    for case, outcome in zip(cases, outcomes, strict=True):
        if outcome.differs:
            differing.append(f"{case.name} ({case.kind}): {outcome.differs}")
        elif outcome.not_proven:
            missing[case.kind, outcome.not_proven] += 1
    return OpsProof(
        len(cases),
        len(cases) - sum(missing.values()) - len(differing),
        smaller,
        [NotProven(op, count, why) for (op, why), count in sorted(missing.items())],
        differing,
        sum(outcome.is_exact for outcome in outcomes),
    )
