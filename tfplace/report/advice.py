"""What else a user could do with the same devices: plain data parallelism."""

from __future__ import annotations

from tfplace.choosing.data_parallel import DataParallel
from tfplace.units_text import bytes_text, seconds_text

START_SECONDS = 1e-4
"""What TensorFlow takes at least to start a step and its first ops. No prediction holds it, so a
gain below it says nothing."""


def advice(estimate: DataParallel | None, step_seconds: float) -> list[str]:
    """Sentences for a person; none where there is nothing that could be done.

    Args:
      estimate: plain data parallelism; None where it makes no sense.
      step_seconds: predicted, of the placement that is written.
    """
    if estimate is None or estimate.step_seconds is None:
        return []
    if estimate.step_seconds + START_SECONDS > step_seconds:
        return []
    return [
        f"plain data parallelism over {estimate.num_shards} devices is predicted to be faster: "
        f"{seconds_text(estimate.step_seconds)} a step, moving "
        f"{bytes_text(estimate.transfer_bytes)} between them; try --shards={estimate.num_shards}"
    ]
