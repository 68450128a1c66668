"""Chooses the channel rule that best explains how long transfers take that go at once."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from graphs.cluster import COMMUNICATION_RULES, rule_channels

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
    """When the fullest of a rule's channels is done with its transfers."""
    channels = rule_channels(rule, 1 + max(max(pair) for pair in pairs))
    seconds_of_channel: dict[int, float] = {}
    for pair in pairs:
        for channel in channels[pair].tolist():
            if channel >= 0:
                before = seconds_of_channel.get(channel, 0.0)
                seconds_of_channel[channel] = before + alone_seconds[pair]
    return max(seconds_of_channel.values())
