"""Sampled placements with what the learning rules need of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Grouping
from tfplace.trial import Proposal

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

    @property
    def log_probs(self) -> ProbabilityArray:
        """f4[B, G]: log-probability of each group's device; 0 for a group without a choice."""
        chosen = self.devices[:, :, np.newaxis]
        return np.take_along_axis(self.log_distributions, chosen, axis=2)[:, :, 0]


@dataclasses.dataclass(frozen=True)
class Batch:
    """One update's worth of trials.

    Attributes:
      groups: i4[B, N] group of each op; rows are equal unless the policy groups, too.
      devices: i4[B, G].
      log_distributions: f4[B, G, D], as in GroupedProposal.
      rewards: f8[B], higher is better.
      advantages: f8[B], reward minus baseline, possibly scaled.
    """

    groups: IntArray
    devices: IntArray
    log_distributions: ProbabilityArray
    rewards: FloatArray
    advantages: FloatArray


def grouped_batch(
    grouping: Grouping, proposal: GroupedProposal, rewards: FloatArray, advantages: FloatArray
) -> Batch:
    """The batch of a policy whose groups don't change."""
    size = len(proposal.devices)
    return Batch(
        groups=np.broadcast_to(grouping.group_of_op, (size, len(grouping.group_of_op))),
        devices=proposal.devices,
        log_distributions=proposal.log_distributions,
        rewards=rewards,
        advantages=advantages,
    )
