"""Drives a policy in tests."""

import numpy as np


def search(policy, evaluator, num_trials):
    """Outcomes and placements i4[trials, N], until there are enough or the policy ends."""
    outcomes, placements = [], []
    while len(outcomes) < num_trials:
        proposal = policy.propose()
        if proposal is None:
            break
        batch = evaluator.evaluate(proposal.device_of_op)
        scalars = policy.learn(proposal, batch)
        assert all(np.isfinite(value) for value in scalars.values()), scalars
        outcomes += batch
        placements.append(proposal.device_of_op)
    return outcomes, np.concatenate(placements)
