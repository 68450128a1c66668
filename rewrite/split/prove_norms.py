"""Proves that what takes the place of a fused batch normalisation computes what that does.

Values and gradients, by TensorFlow's own fused kernels, at the shapes of the step. From there on
the proofs of a split step begin with the step whose normalisations are apart.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.asked_child import AskedChild, ChildError
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


class BegunNorms(contextlib.AbstractContextManager["BegunNorms"]):
    """Normalisations that are being run; what still goes on ends with the block."""

    def __init__(
        self,
        fused: FlatGraph,
        apart: FlatGraph,
        properties: TensorProperties,
        memory_bytes: float | None = None,
    ) -> None:
        """Begins to run each distinct one fused and apart, in a child process, if there are any.

        Args:
          fused: the step as it was.
          apart: the step whose normalisations are taken apart; the same where there are none.
          properties: of the tensors of `apart`.
          memory_bytes: of the child.
        """
        self._cases: Sequence[NormCase] = ()
        self._wrong, self._child = "", None
        try:
            self._cases = norm_cases(fused, apart, properties)
        except RewriteError as error:
            self._wrong = str(error)
        if self._cases:
            self._child = AskedChild(_CHILD)
            self._child.ask(NormsRequest(self._cases, memory_bytes))

    def proof(self, seconds: float) -> NormsProof:
        """Waits until they have run; what has not after so many seconds is not proven."""
        if self._wrong:
            return NormsProof(differing=[self._wrong])
        if self._child is None:
            return NormsProof()
        cases = self._cases
        try:
            answer: NormsAnswer = self._child.answer(seconds)
            why = answer.ended
        except ChildError as error:
            answer, why = error.last_message or NormsAnswer(), str(error)
        told = len(answer.proven) + len(answer.differing) + len(answer.not_proven)
        left = [f"{case.name}: {why}" for case in cases[told:]]
        return NormsProof(
            len(cases), len(answer.proven), [*answer.not_proven, *left], answer.differing
        )

    def __exit__(self, *error: object) -> None:
        if self._child is not None:
            self._child.close()
