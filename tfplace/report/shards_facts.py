"""What --shards=auto tried, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfplace.choosing.tried_shards import TriedShards
from tfplace.units_text import seconds_text


def shards_sentences(tried: Sequence[TriedShards]) -> Iterator[tuple[str, str]]:
    """What was found for each number of shards, as names and what is said of them."""
    for number, each in enumerate(tried):
        said = each.reason or f"tried, {seconds_text(each.step_seconds)} a step"
        if each.single_seconds is not None:
            said += f" ({seconds_text(each.single_seconds)} on one device)"
        yield "" if number else "shards", f"{each.shards}: {said}"
