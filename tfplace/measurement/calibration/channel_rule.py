"""Chooses the channel rule that best explains how long transfers take that go at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from graphs.cluster import COMMUNICATION_RULES

Pair = tuple[int, int]

# Rules whose errors differ by less explain equally well.
_EQUALLY_GOOD = 0.01


@dataclasses.dataclass(frozen=True)
class TransfersAtOnce:
    """Transfers of equal size that were sent together.

    Attributes:
      pairs: (source, target) of each.
      seconds: until all of them have arrived.
    """

    pairs: Sequence[Pair]
    seconds: float


@dataclasses.dataclass(frozen=True)
class RuleChoice:
    """The rule that explains measured transfers best.

    Attributes:
      rule: of COMMUNICATION_RULES; the earlier one where several explain equally well.
      error_of_rule: {rule: mean |log(predicted / measured)|}; 0 is perfect, and where nothing
        was measured that tells rules apart, all have the same.
    """

    rule: str
    error_of_rule: Mapping[str, float]


def choose_rule(
    alone_seconds: Mapping[Pair, float], observed: Sequence[TransfersAtOnce]
) -> RuleChoice:
    """Compares what each rule predicts with what was measured.

    A rule says which transfers share a channel and so wait for each other: all are done when the
    fullest channel is.

    Args:
      alone_seconds: {pair: seconds of its transfer when nothing else goes}.
      observed: transfers that went at once, each of the same size as those.
    """
    errors = {
        rule: sum(
            abs(math.log(predicted_seconds(rule, alone_seconds, together.pairs) / together.seconds))
            for together in observed
        )
        / max(len(observed), 1)
        for rule in COMMUNICATION_RULES
    }
    least = min(errors.values())
    rule = next(rule for rule in errors if errors[rule] <= least + _EQUALLY_GOOD)
    return RuleChoice(rule, errors)


def predicted_seconds(
    rule: str, alone_seconds: Mapping[Pair, float], pairs: Sequence[Pair]
) -> float:
    """When the fullest channel of a rule (see Cluster.link_channels) is done."""
    full: dict[tuple[str, object], float] = {}
    for source, target in pairs:
        channels: Sequence[tuple[str, object]] = {
            "duplex": (("out", source), ("in", target)),
            "sender": (("out", source),),
            "half_duplex": (("of", source), ("of", target)),
            "pairwise": (("pair", (source, target)),),
        }[rule]
        for channel in channels:
            full[channel] = full.get(channel, 0.0) + alone_seconds[source, target]
    return max(full.values())
