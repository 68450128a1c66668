"""How a step was split along its batch, for report.json and `tfplace inspect --shards`."""

import dataclasses
from collections.abc import Iterator, Sequence

from graphs.by_key import by_key
from graphs.counted import counted
from graphs.names import op_of
from graphs.pricing.node_work import node_work
from graphs.protos import JsonObject
from rewrite.split.split_model import SplitModel
from rewrite.split.states import shard_sizes
from rewrite.split.summary import AN_OUTPUT, split_work, summary_of
from tfplace.bounds.any_split import RangeBound, least_of
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.units_text import seconds_text, share_text

MAX_REASONS = 12
MAX_WEIGHTS = 6
"""So many weights in pieces are named."""
LITTLE = 0.5
"""A step of which less than this share of the work is split gains little by it."""


def split_facts(split: SplitModel | None) -> JsonObject | None:
    """The contract's fields; None where the step is whole."""
    if split is None:
        return None
    decisions = split.decisions
    summary = summary_of(split.flat, decisions, split.step)
    trained = {variable.op for variable in split.given.variables if variable.trainable}
    axes = {op_of(feed): axis for feed, axis in decisions.axis_of_feed.items()}
    return {
        "shards": split.num_shards,
        "axes": axes,
        "batch": decisions.batch,
        "any_batch": decisions.takes_any_batch,
        "weights": [
            {"name": name, "axis": state.axis, "of": len(split.step.pieces[name][0].shape)}
            for name, state in sorted(
                decisions.pieces.items(), key=lambda pair: pair[0] not in trained
            )
        ],
        **dataclasses.asdict(summary),
    }


def any_split_facts(
    bounds: Sequence[RangeBound], step_seconds: float, left_whole: int = 0
) -> JsonObject | None:
    """What no number of shards can beat; None where several were not tried.

    Args:
      bounds: of numbers of shards, which split the same ops.
      left_whole: how many ops could be split that are not.
    """
    least = least_of(bounds)
    if not least:
        return None
    return {
        "lower_bound_seconds": least,
        "gap": step_seconds / least - 1.0,
        "left_whole": left_whole,
        "ranges": [dataclasses.asdict(each) for each in bounds],
    }


def split_facts_with_work(split: SplitModel | None) -> JsonObject | None:
    """The same, with shares of the floating-point work: split, whole by reason, and the rest."""
    facts = split_facts(split)
    if split is None or facts is None:
        return None
    work = split_work(split.flat, split.decisions, node_work(split.flat, split.properties))
    whole = [
        {**row, "flops_share": work.whole[row["op_type"], row["reason"]]}
        for row in facts["whole_because"]
    ]
    return {
        **facts,
        "whole_because": whole,
        "flops_share": work.split,
        "beside_flops_share": work.beside,
        "below_flops_share": work.below,
    }


def split_sentences(facts: JsonObject) -> Iterator[tuple[str, str]]:
    """The same for a person, as names and what is said of them."""
    part, what = ("piece", "them") if facts["weights"] else ("shard", "the batch")
    yield "split", _what_is_split(facts)
    copies = f"{counted(facts['sharded_ops'], 'op has', 'ops have')} a copy for each {part}"
    yield "", copies + _of_work(facts, "flops_share")
    below = facts["below_ops"]
    beside = facts["whole_ops"] - below - sum(row["count"] for row in facts["whole_because"])
    apart = f"{counted(beside, 'has', 'have')} nothing to do with {what}"
    share = _of_work(facts, "beside_flops_share")
    yield "", f"{apart} (variables, updates, constants){share}"
    if below:
        behind = f"{counted(below, 'stays', 'stay')} whole behind ops that do"
        yield "", behind + _of_work(facts, "below_flops_share")
    yield "", _joints(facts, part)
    reasons = [row for row in facts["whole_because"] if row["reason"] != AN_OUTPUT]
    for row in reasons[:MAX_REASONS]:
        yield "whole", f"{row['count']:,} {row['op_type']}: {row['reason']}{_share(row)}"
    if len(reasons) > MAX_REASONS:
        more = counted(len(reasons) - MAX_REASONS, "more reason")
        yield "", f"and {more} (--format=json has all)"
    if not reasons:
        yield "whole", f"nothing that works on {what}"
    if facts.get("flops_share", 1.0) < LITTLE:
        yield "note", f"most of the floating-point work is not split: {part}s gain little here"


def _what_is_split(facts: JsonObject) -> str:
    """ "a batch of 7 into 3 shards of 3, 2 and 2, ..."; or weights, the first of them named."""
    if facts["weights"]:
        named = [f"{w['name']} by {_axis(w)}" for w in facts["weights"] if w["of"] > 1]
        more = len(facts["weights"]) - len(named[:MAX_WEIGHTS])
        rest = f" and {counted(more, 'more variable')}" if more else ""
        taken = "" if facts["any_batch"] else "; it takes inputs of one size"
        listed = ", ".join(named[:MAX_WEIGHTS])
        return f"weights into {facts['shards']} pieces: {listed}{rest}{taken}"
    sizes = shard_sizes(facts["batch"], facts["shards"])
    each = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} or {sizes[-1]}"
    batch = f"a batch of {facts['batch']:,}"
    if facts["any_batch"]:
        batch = f"a batch of any size, priced for {facts['batch']:,},"
    inputs = by_key((axis, name) for name, axis in facts["axes"].items())
    along = "; ".join(f"axis {axis} of {', '.join(names)}" for axis, names in inputs.items())
    return f"{batch} into {facts['shards']} shards of {each}: {along}"


def _axis(weight: JsonObject) -> str:
    axis: int = weight["axis"]
    return ("rows", "columns")[axis] if weight["of"] == 2 else f"axis {axis}"


def _joints(facts: JsonObject, part: str) -> str:
    """What stands where shards and whole ops meet."""
    counts = [
        f"{facts[key]:,} {'tensor is' if facts[key] == 1 else 'tensors are'} {words}"
        for key, words in (
            ("sums", f"summed over the {part}s" + " (gradients, losses)" * (part == "shard")),
            ("joins", "joined"),
            ("cuts", "cut"),
        )
        if facts[key]
    ]
    return ", ".join(counts) or "no tensor is summed, joined or cut"


def _of_work(facts: JsonObject, key: str) -> str:
    return f": {share_text(facts[key])} of the floating-point work" if key in facts else ""


def _share(row: JsonObject) -> str:
    """What share of the work stays whole for a reason; nothing where it is next to none."""
    share = row.get("flops_share", 0.0)
    return f" ({share_text(share)} of the work)" if share >= 0.005 else ""


def shards_sentences(tried: Sequence[TriedShards]) -> Iterator[tuple[str, str]]:
    """What --shards=auto found for each number, as names and what is said of them."""
    for number, each in enumerate(tried):
        said = each.reason or f"tried, {seconds_text(each.step_seconds)} a step"
        if each.single_seconds is not None:
            said += f" ({seconds_text(each.single_seconds)} on one device)"
        if each.measured_seconds is not None:
            said += f"; measured {seconds_text(each.measured_seconds)}"
        name = "" if number else "shards"
        of_weights = " pieces of weights" if each.cut == "weights" else ""
        yield name, f"{each.shards}{of_weights}: {said}"
