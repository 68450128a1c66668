"""What of a proof needs no written model begins beside writing it, on another core.

Writing is Python's work alone. The bound is compiled code in a thread, and a child runs the ops of
a large split step.
"""

from __future__ import annotations

import contextlib

import psutil

from rewrite.split.op_cases import op_cases
from rewrite.split.prove_ops import BegunCases, begun_cases
from rewrite.split.split_model import SplitModel
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.choosing.split_proof import is_large
from tfplace.interruption import Interruption, InThread
from tfplace.preparing.prepare import PreparedModel


class BegunProof(contextlib.AbstractContextManager["BegunProof"]):
    """A proof of which parts go on; what nobody has asked for by the end of the block ends with it.

    Attributes:
      bound: no placement's step is shorter.
      ops: the ops of a large split step, in a child; None where there are none, or after Ctrl-C.
    """

    def __init__(self, prepared: PreparedModel, interruption: Interruption) -> None:
        """Begins them."""
        bounded = prepared.unlimited or prepared.problem  # --max_devices chose among devices
        self.bound: InThread[float | None] = InThread(lambda: lower_bound_seconds(bounded))
        split = prepared.split
        self.ops: BegunCases | None = (
            None if split is None else interruption.unless_seen(lambda: _begun_ops(split), None)
        )

    def __exit__(self, *error: object) -> None:
        if self.ops is not None:
            self.ops.__exit__()


def _begun_ops(split: SplitModel) -> BegunCases | None:
    if not is_large(split):
        return None
    free = psutil.virtual_memory().available / 2
    return begun_cases(op_cases(split.flat, split.decisions, split.num_shards), free)
