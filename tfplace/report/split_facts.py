"""How a step was split along its batch, for report.json and `tfplace inspect --shards`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphs.names import op_of
from rewrite.split.split_model import SplitModel
from rewrite.split.summary import summary_of
from tfplace.choosing.tried_shards import TriedShards
from tfplace.units_text import seconds_text, share_text

MAX_REASONS = 12


def split_facts(split: SplitModel | None) -> Mapping[str, Any] | None:
    """The contract's fields; None where the step is whole."""
    if split is None:
        return None
    summary = summary_of(split.flat, split.decisions, split.step)
    axes = {op_of(feed): axis for feed, axis in split.decisions.axis_of_feed.items()}
    return {"shards": split.num_shards, "axes": axes, **dataclasses.asdict(summary)}


def split_sentences(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same for a person, as names and what is said of them."""
    axes = ", ".join(f"{name} along axis {axis}" for name, axis in facts["axes"].items())
    yield "split", f"into {facts['shards']} shards: {axes}"
    share = facts.get("flops_share")
    work = "" if share is None else f", {share_text(share)} of the floating-point work"
    yield (
        "",
        f"{facts['sharded_ops']:,} ops are split{work}; {facts['whole_ops']:,} stay whole; "
        f"{facts['sums']:,} sums, {facts['joins']:,} joins, {facts['cuts']:,} cuts",
    )
    reasons = facts["whole_because"]
    for row in reasons[:MAX_REASONS]:
        yield "whole", f"{row['op_type']}, {row['count']:,}: {row['reason']}"
    if len(reasons) > MAX_REASONS:
        yield "", f"and {len(reasons) - MAX_REASONS} more reasons (--format=json has all)"


def shards_sentences(tried: Sequence[TriedShards]) -> Iterator[tuple[str, str]]:
    """What --shards=auto found for each number, as names and what is said of them."""
    for number, each in enumerate(tried):
        said = each.reason or f"tried, {seconds_text(each.step_seconds)} a step"
        if each.single_seconds is not None:
            said += f" ({seconds_text(each.single_seconds)} on one device)"
        name = "" if number else "shards"
        yield name, f"{each.shards}: {said}"
