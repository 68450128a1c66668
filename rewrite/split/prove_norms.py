"""Proves that what takes the place of a fused batch normalisation computes what that does.

Values and gradients, by TensorFlow's own fused kernels, at the shapes of the step. From there on
the proofs of a split step begin with the step whose normalisations are apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from rewrite.pass_base import RewriteError
from rewrite.split.norm_cases import norm_cases
from rewrite.split.prove_ops import prove_cases


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
    """Runs each distinct one fused and apart, in a child process, if there are any.

    Args:
      fused: the step as it was.
      apart: the step whose normalisations are taken apart; the same where there are none.
      properties: of the tensors of `apart`.
      seconds: what has not been run by then is not proven.
      memory_bytes: of the child.
    """
    try:
        cases = norm_cases(fused, apart, properties)
    except RewriteError as error:
        return NormsProof(differing=[str(error)])
    outcomes, _ = prove_cases(cases, seconds, memory_bytes)
    told = list(zip(cases, outcomes, strict=True))
    differing = [f"{case.name}: {each.differs}" for case, each in told if each.differs]
    not_proven = [f"{case.name}: {each.not_proven}" for case, each in told if each.not_proven]
    proven = len(cases) - len(differing) - len(not_proven)
    return NormsProof(len(cases), proven, not_proven, differing)
