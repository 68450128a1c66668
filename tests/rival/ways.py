"""The ways to train that are compared, and what a process of one is asked."""

from __future__ import annotations

import dataclasses

ONE, TFPLACE = "one worker", "tfplace"
MULTI_WORKER, MIRRORED = "MultiWorkerMirrored", "Mirrored"
WAYS = (ONE, TFPLACE, MULTI_WORKER, MIRRORED)
"""The ways to train; all others are compared with the first."""


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Asks for the losses of the first steps of a model; what was prepared before is gone.

    Attributes:
      model: its name.
      num_steps: how many of them.
      path: the SavedModel that tfplace made of it.
    """

    model: str
    num_steps: int
    path: str = ""
