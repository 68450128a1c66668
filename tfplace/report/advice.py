"""What else a user could do with the same devices: plain data parallelism, or one device."""

from __future__ import annotations

from tfplace.choosing.what_if import DataParallel
from tfplace.units_text import bytes_text, seconds_text, share_text


def advice(
    estimate: DataParallel | None,
    verdict: str,
    step_seconds: float,
    lower_bound_seconds: float | None,
) -> list[str]:
    """Sentences for a person.

    Args:
      estimate: of data parallelism; None where it makes no sense.
      verdict: the report's.
      step_seconds: predicted, of the placement that is written.
      lower_bound_seconds: of every placement; None where it is not known.
    """
    sentences = []
    if verdict == "kept_single":
        least = lower_bound_seconds or 0.0
        proof = "" if least <= 0.0 else f", and none can take less than {seconds_text(least)}"
        sentences.append(
            f"one device is best for this graph: no placement over several that was found beats "
            f"its {seconds_text(step_seconds)}{proof}"
        )
    if estimate is not None:
        sentences.append(_data_parallel_sentence(estimate, step_seconds, lower_bound_seconds))
    return sentences


def _data_parallel_sentence(
    estimate: DataParallel, step_seconds: float, lower_bound_seconds: float | None
) -> str:
    what = f"plain data parallelism over {estimate.num_replicas} devices"
    about = f"about {seconds_text(estimate.step_seconds)} a step"
    if not estimate.fits:
        return (
            f"{what} would not fit: a replica needs {bytes_text(estimate.bytes_per_replica)}, all "
            "variables among them"
        )
    if estimate.step_seconds >= step_seconds:
        own = f"{seconds_text(step_seconds)} a step"
        return (
            f"the placement written is predicted to be faster ({own}) than {what}, which would "
            f"take {about}"
        )
    beats = "than any placement found"
    if lower_bound_seconds and estimate.step_seconds < lower_bound_seconds:
        beats = "than any placement of this graph can be"
    return (
        f"{what} would be faster {beats}: {about} at the same batch of {estimate.batch_size:,}, "
        f"{seconds_text(estimate.compute_seconds)} of compute, taking "
        f"{share_text(estimate.batch_share)} of the work to shrink in proportion to the batch, "
        f"and {seconds_text(estimate.all_reduce_seconds)} to sum "
        f"{bytes_text(estimate.gradient_bytes)} of gradients"
    )
