"""What else a user could do with the same devices: plain data parallelism."""

from __future__ import annotations

from tfplace.choosing.what_if import DataParallel
from tfplace.units_text import bytes_text, seconds_text, share_text

START_SECONDS = 1e-4
"""What TensorFlow takes at least to start a step and its first ops. No prediction holds it, so a
gain below it says nothing."""


def advice(
    estimate: DataParallel | None, step_seconds: float, lower_bound_seconds: float | None
) -> list[str]:
    """Sentences for a person; none where there is nothing that could be done.

    Args:
      estimate: of data parallelism; None where it makes no sense.
      step_seconds: predicted, of the placement that is written.
      lower_bound_seconds: of every placement; None where it is not known.
    """
    if estimate is None or estimate.step_seconds + START_SECONDS > step_seconds:
        return []
    what = f"plain data parallelism over {estimate.num_replicas} devices"
    if not estimate.fits:
        return [
            f"{what} would not fit: a replica needs {bytes_text(estimate.bytes_per_replica)}, all "
            "variables among them"
        ]
    beats = "than any placement found"
    if lower_bound_seconds and estimate.step_seconds < lower_bound_seconds:
        beats = "than any placement of this graph can be"
    return [
        f"{what} would be faster {beats}: about {seconds_text(estimate.step_seconds)} a step at "
        f"the same batch of {estimate.batch_size:,}, "
        f"{seconds_text(estimate.compute_seconds)} of compute, taking "
        f"{share_text(estimate.batch_share)} of the work to shrink in proportion to the batch, "
        f"and {seconds_text(estimate.all_reduce_seconds)} to sum "
        f"{bytes_text(estimate.gradient_bytes)} of gradients"
    ]
