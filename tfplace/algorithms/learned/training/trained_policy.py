"""`optimize --policy`: Placeto with a checkpoint's weights, which it then trains further."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphs.errors import UsageError
from graphs.problem import Problem
from tfplace.algorithms.learned.config import PlacetoConfig
from tfplace.algorithms.learned.training.checkpoint import Checkpoint, read_checkpoint

if TYPE_CHECKING:
    from tfplace.algorithms.learned.placeto import Placeto

ALGORITHM = "placeto"


def algorithm_with_policy(algorithm: str, policy: str | None) -> tuple[str, Checkpoint | None]:
    """The algorithm that runs, and what it starts from; "auto" with a policy is Placeto.

    Raises:
      CheckpointError: the checkpoint is missing, damaged or not ours.
      UsageError: the algorithm has no policy of that kind.
    """
    if policy is None:
        return algorithm, None
    if algorithm not in ("auto", ALGORITHM):
        raise UsageError(
            f"reading --policy={policy}: a trained policy is one of {ALGORITHM}'s, found "
            f"--algorithm={algorithm}; leave one of the two flags out"
        )
    return ALGORITHM, read_checkpoint(policy)


def placeto_from(checkpoint: Checkpoint, problem: Problem, seed: int) -> Placeto:
    """Placeto with a checkpoint's weights.

    Its first episode is the trained policy alone; then it goes on learning at the last, low rate.

    Args:
      checkpoint: of `tfplace train`.
      problem: any graph and cluster.
      seed: of its random choices.
    """
    from tfplace.algorithms.learned.placeto import Placeto

    default, sizes = PlacetoConfig(), checkpoint.sizes
    config = dataclasses.replace(
        default,
        units=sizes.units,
        rounds=sizes.rounds,
        grouping=dataclasses.replace(default.grouping, max_groups=sizes.max_groups),
        optimizer=dataclasses.replace(default.optimizer, learning_rate=default.last_learning_rate),
    )
    placeto = Placeto(problem, seed, config)
    placeto.set_weights(checkpoint.arrays)
    return placeto
