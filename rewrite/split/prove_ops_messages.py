"""What `prove_ops` asks of its child process and what that answers: values that are pickled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rewrite.split.op_case import OpCase


@dataclasses.dataclass(frozen=True)
class ProveOpsRequest:
    """What the child is to do.

    Attributes:
      batches: cases that are run together, those of one batch at a time.
      memory_bytes: the child ends itself when it holds more; None for no limit.
    """

    batches: Sequence[Sequence[OpCase]]
    memory_bytes: float | None


@dataclasses.dataclass(frozen=True)
class CaseOutcome:
    """What came of one case.

    Attributes:
      not_proven: why nothing could be compared; "" where it was.
      differs: how the parts differ from the whole; "" where they are equal.
    """

    not_proven: str = ""
    differs: str = ""


@dataclasses.dataclass(frozen=True)
class OutcomesSoFar:
    """How far the child is.

    Attributes:
      batches: the outcomes of the batches that are done, one row for each.
      ended: why the child gives up during the next one; "" while it goes on.
    """

    batches: Sequence[Sequence[CaseOutcome]] = ()
    ended: str = ""
