"""Proposed placements with what the learning rules need of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from graphs.op_graph import IntArray
from tfplace.search.trial import Proposal

ProbabilityArray = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class GroupedProposal(Proposal):
    """Placements made of one device per group.

    Attributes:
      device_of_op: i4[B, N].
      devices: i4[B, G] device of each group.
      log_distributions: f4[B, G, D] log π of each group's device, given those of the groups
        before it, under the policy that sampled them.
    """

    devices: IntArray
    log_distributions: ProbabilityArray
