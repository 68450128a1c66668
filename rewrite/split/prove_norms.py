"""Proves that what takes the place of a fused batch normalisation computes what that does.

Values and gradients, by TensorFlow's own fused kernels, at the shapes of the step. From there on
the proofs of a split step begin with the step whose normalisations are apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.child import ChildError, ask_child
from rewrite.pass_base import RewriteError
from rewrite.split.norm_cases import NormCase, norm_cases

_CHILD = "rewrite.split.prove_norms_child"


@dataclasses.dataclass(frozen=True)
class NormsRequest:
    """What the child is to do.

    Attributes:
      cases: what to run.
      memory_bytes: the child ends itself when it holds more; None for no limit.
    """

    cases: Sequence[NormCase]
    memory_bytes: float | None


@dataclasses.dataclass(frozen=True)
class NormsAnswer:
    """How far the child is.

    Attributes:
      proven: names of the cases that are the same.
      differing: "name: how" of those that are not.
      not_proven: "name: why" of those that could not be run.
      ended: why the child gave up; "" where it didn't.
    """

    proven: Sequence[str] = ()
    differing: Sequence[str] = ()
    not_proven: Sequence[str] = ()
    ended: str = ""


@dataclasses.dataclass(frozen=True)
class NormsProof:
    """What came of it.

    Attributes:
      distinct: how many distinct normalisations were taken apart.
      proven: how many of them were run fused and apart, and are the same.
      not_proven: "name: why" of the others.
      differing: defects of tfplace.
    """

    distinct: int = 0
    proven: int = 0
    not_proven: Sequence[str] = ()
    differing: Sequence[str] = ()


def prove_norms(
    fused: FlatGraph,
    apart: FlatGraph,
    properties: TensorProperties,
    seconds: float,
    memory_bytes: float | None = None,
) -> NormsProof:
    """Runs each distinct normalisation fused and apart, in a child process.

    Args:
      fused: the step as it was.
      apart: the step whose normalisations are taken apart; the same where there are none.
      properties: of the tensors of `apart`.
      seconds: what has not been run by then counts as not proven.
      memory_bytes: of the child.
    """
    try:
        cases = norm_cases(fused, apart, properties)
    except RewriteError as error:
        return NormsProof(differing=[str(error)])
    if not cases:
        return NormsProof()
    try:
        answer: NormsAnswer = ask_child(_CHILD, NormsRequest(cases, memory_bytes), seconds)
        why = answer.ended
    except ChildError as error:
        answer, why = error.last_message or NormsAnswer(), str(error)
    told = len(answer.proven) + len(answer.differing) + len(answer.not_proven)
    left = [f"{case.name}: {why}" for case in cases[told:]]
    return NormsProof(len(cases), len(answer.proven), [*answer.not_proven, *left], answer.differing)
