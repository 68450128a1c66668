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
      log_probs: f4[B, G] log-probability of each group's device, given those of the groups
        before it, under the policy that sampled them (0 for a group without a choice).
    """

    devices: IntArray
    log_probs: ProbabilityArray


@dataclasses.dataclass(frozen=True)
class Batch:
    """One update's worth of trials.

    Attributes:
      groups: i4[B, N] group of each op; rows are equal unless the policy groups, too.
      devices: i4[B, G].
      log_probs: f4[B, G], as in GroupedProposal; a placement's is the sum of its row.
      rewards: f8[B], higher is better.
      advantages: f8[B], reward minus baseline, possibly scaled.
    """

    groups: IntArray
    devices: IntArray
    log_probs: ProbabilityArray
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
        log_probs=proposal.log_probs,
        rewards=rewards,
        advantages=advantages,
    )
