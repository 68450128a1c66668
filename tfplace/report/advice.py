"""What else a user could do with the same devices: plain data parallelism, or one device."""

from __future__ import annotations

from tfplace.choosing.data_parallel import DataParallel
from tfplace.units_text import bytes_text, seconds_text


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
        sentences.append(_data_parallel_sentence(estimate, step_seconds))
    return sentences


def _data_parallel_sentence(estimate: DataParallel, step_seconds: float) -> str:
    what = f"plain data parallelism over {estimate.num_shards} devices"
    if estimate.step_seconds is None:
        return f"{what} can't run: {estimate.reason}"
    about = f"{seconds_text(estimate.step_seconds)} a step"
    if estimate.step_seconds >= step_seconds:
        own = f"{seconds_text(step_seconds)} a step"
        return (
            f"the placement written is predicted to be at least as fast ({own}) as {what}: {about}"
        )
    return (
        f"{what} is predicted to be faster: {about}, moving "
        f"{bytes_text(estimate.transfer_bytes)} between them; try --shards={estimate.num_shards}"
    )
