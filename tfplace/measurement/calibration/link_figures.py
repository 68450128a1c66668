"""Measures a link: latency and rate, what transfers take of its two devices, and channels."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import COMMUNICATION_RULES, rule_channels
from graphs.op_graph import FloatArray
from tfplace.measurement.calibration.device_figures import OpFigures
from tfplace.measurement.calibration.line_fit import LineFit, fit_line, with_intervals
from tfplace.measurement.calibration.probe_graphs import (
    TransferProbe,
    ping_pong,
    products_beside_transfers,
    transfers_at_once,
)
from tfplace.measurement.calibration.probing import Prober, median_difference

Pair = tuple[int, int]

# Rules whose errors differ by less explain equally well.
_EQUALLY_GOOD = 0.01


@dataclasses.dataclass(frozen=True)
class TransfersAtOnce:
    """Transfers of equal size that were sent together."""

    pairs: Sequence[Pair]  # (source, target) of each
    seconds: float  # until all of them have arrived


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


# Bytes of the tensors that go to and fro, from one cache line to 32 MiB; fewer on larger clusters.
SIZES = (64, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 25)
FEW_SIZES = (64, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
_MOST_PAIRS_WITH_ALL_SIZES = 6

# {bytes: transfers that go beside the products}, compared with one transfer, and how long the
# products take: all transfers, 33 of 64 KiB or 4 of 4 MiB, are over before.
BUSY_COUNTS = {64: 33, 1 << 16: 33, 1 << 18: 17, 1 << 20: 9, 1 << 22: 4}
_BUSY_CHAIN_SECONDS = 30e-3
_LONGEST_CHAIN = 500
"""A GPU's products take microseconds: to read a graph of thousands takes longer than a budget."""

# Bytes and number of the transfers that go at once over each of several links.
_RULE_BYTES, _RULE_COUNT = 1 << 20, 4


@dataclasses.dataclass(frozen=True)
class LinkFigures:
    """How quick a link is."""

    bytes_per_second: float  # as the simulator takes it
    latency_seconds: float  # as the simulator takes it
    fit: LineFit  # of the round trip: a tensor there, one element back
    round_trip_seconds: Mapping[int, float]  # {bytes: median seconds}


@dataclasses.dataclass(frozen=True)
class BusyFigures:
    """What a transfer takes of a device at one of its ends, while that device computes.

    Attributes:
      fit: seconds by bytes; None where none of it could be told from noise.
      transfer_seconds: {bytes: median seconds}; not above 0 where it drowns in noise.
    """

    fit: LineFit | None
    transfer_seconds: Mapping[int, float]


class MeasuredLink:
    """One link's figures by all rounds so far: what is too unsure alone may not be so together."""

    def __init__(self) -> None:
        self._rounds: dict[int, FloatArray] = {}

    def figures_with(self, rounds: Mapping[int, FloatArray]) -> LinkFigures:
        """Takes {bytes: f8[rounds] seconds of a round trip}."""
        self._rounds = {
            size: np.concatenate([self._rounds.get(size, np.empty(0)), each])
            for size, each in rounds.items()
        }
        link = link_figures({size: float(np.median(each)) for size, each in self._rounds.items()})
        return dataclasses.replace(link, fit=with_intervals(link.fit, self._rounds))


def measure_link(
    source: str,
    target: str,
    sizes: Sequence[int],
    prober: Prober,
    budget_seconds: float,
    known: MeasuredLink | None = None,
) -> LinkFigures:
    """Times round trips of different sizes; the difference of many and few is free of the step.

    Args:
      sizes: bytes.
      budget_seconds: of the steps.
      known: what was measured of it before, which counts, too.
    """
    probes = {
        (size, hops): ping_pong(source, target, size, hops)
        for size in sizes
        for hops in (1, _hops(size))
    }
    seconds = prober.time(probes, budget_seconds)
    rounds = {
        size: (seconds[size, _hops(size)] - seconds[size, 1]) / (_hops(size) - 1) for size in sizes
    }
    return (known or MeasuredLink()).figures_with(rounds)


def sizes_of(num_links: int) -> Sequence[int]:
    """Bytes that go to and fro over each of so many links."""
    return SIZES if num_links <= _MOST_PAIRS_WITH_ALL_SIZES else FEW_SIZES


def _hops(size: int) -> int:
    return 9 if size <= 1 << 18 else 3


def link_figures(round_trip_seconds: Mapping[int, float]) -> LinkFigures:
    """The figures of a link from {bytes: seconds of a round trip}.

    Only the sum of the latencies there and back can be known without a common clock: each way
    gets half of it. Times that noise has made negative are left out.

    Raises:
      ValueError: none is positive.
    """
    usable = {size: seconds for size, seconds in round_trip_seconds.items() if seconds > 0}
    fit = fit_line(list(usable), list(usable.values()))
    slope = fit.seconds_per_unit
    return LinkFigures(
        # A link without a slope is quicker than anything that was sent over it shows.
        bytes_per_second=1.0 / slope if slope else max(usable) / min(usable.values()),
        latency_seconds=fit.fixed_seconds / 2,
        fit=fit,
        round_trip_seconds=dict(round_trip_seconds),
    )


def measure_busy(
    device: str,
    pair: tuple[str, str],
    ops: OpFigures,
    counts: Mapping[int, int],
    prober: Prober,
    budget_seconds: float,
) -> BusyFigures:
    """How much longer a chain of products takes on a device beside transfers to or from it.

    CPU time from /proc would say the same for workers of this host (33 to 35 us at each end of
    small tensors); this works for GPUs and for tasks of other hosts, too.
    """
    probes = {}
    for size, most in counts.items():
        depth = math.ceil(_BUSY_CHAIN_SECONDS / ops.product_seconds)
        depth = max(most, min(depth, _LONGEST_CHAIN))
        for count in (1, most):
            transfers = TransferProbe(*pair, num_bytes=size, count=count)
            probes[size, count] = products_beside_transfers(
                device, ops.product_side, depth, transfers
            )
    seconds = prober.time(probes, budget_seconds)
    return busy_figures(
        {
            size: (seconds[size, most] - seconds[size, 1]) / (most - 1)
            for size, most in counts.items()
        }
    )


def busy_figures(transfer_seconds: Mapping[int, FloatArray]) -> BusyFigures:
    """The figures from {bytes: f8[rounds] seconds that one transfer took of the device}.

    A size counts where at least three of four rounds show that anything is taken at all.
    """
    medians = {size: float(np.median(seconds)) for size, seconds in transfer_seconds.items()}
    seen = [size for size, seconds in transfer_seconds.items() if np.quantile(seconds, 0.25) > 0]
    if len(seen) < 2:
        return BusyFigures(None, medians)
    fit = fit_line(seen, [medians[size] for size in seen])
    return BusyFigures(
        with_intervals(fit, {size: transfer_seconds[size] for size in seen}), medians
    )


def measure_rule(names: Sequence[str], prober: Prober, budget_seconds: float) -> RuleChoice:
    """Times transfers that go at once between the first two or three devices."""
    if len(names) < 2:
        return choose_rule({}, [])
    # Both ways; one to two and two to one, where there are three.
    patterns: list[tuple[Pair, ...]] = [((0, 1), (1, 0))]
    if len(names) > 2:
        patterns += [((0, 1), (0, 2)), ((1, 0), (2, 0))]
    singles = sorted({(pair,) for pattern in patterns for pair in pattern})
    probes = {
        (pattern, count): transfers_at_once(
            [TransferProbe(names[s], names[t], _RULE_BYTES, count) for s, t in pattern]
        )
        for pattern in (*singles, *patterns)
        for count in (1, _RULE_COUNT)
    }
    seconds = prober.time(probes, budget_seconds)
    of_pattern = {
        pattern: max(median_difference(seconds[pattern, _RULE_COUNT], seconds[pattern, 1]), 1e-9)
        for pattern in (*singles, *patterns)
    }
    observed = [TransfersAtOnce(pattern, of_pattern[pattern]) for pattern in patterns]
    return choose_rule({single[0]: of_pattern[single] for single in singles}, observed)
