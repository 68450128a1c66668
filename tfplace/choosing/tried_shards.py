"""What --shards=auto has found for one number of shards."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TriedShards:
    """One number of shards that --shards=auto came by, for the report.

    Attributes:
      shards: M; 1 for the step as it is.
      step_seconds: the best predicted step; None where nothing was found.
      single_seconds: the best single device's.
      reason: why it was not tried, or nothing was found, else empty.
    """

    shards: int
    step_seconds: float | None = None
    single_seconds: float | None = None
    reason: str = ""
