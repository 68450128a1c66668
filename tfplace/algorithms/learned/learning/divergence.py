"""A learner whose numbers have become infinite or NaN says so and stops."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfplace.search.trial import DivergedError


def require_finite(learner: str, values: Mapping[str, np.ndarray | float]) -> None:
    """Raises where a number that steers the learning is infinite or not a number.

    Args:
      learner: whose, for the message.
      values: of any shape, by name.

    Raises:
      DivergedError: one of them is not finite.
    """
    for name, value in values.items():
        if not np.isfinite(value).all():
            raise DivergedError(
                f"training {learner}: its {name} became {_first_bad(value)}; the policy has "
                "diverged and proposes nothing more; try another --seed or --algorithm"
            )


def _first_bad(value: np.ndarray | float) -> str:
    flat = np.ravel(value)
    return str(flat[~np.isfinite(flat)][0])
