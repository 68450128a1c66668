"""Which links' figures can be trusted; the others are measured again, and then not used.

On a busy machine a line fits by chance: "79.5 GB/s" came of one whose R2 was -0.5.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.by_key import by_key
from graphs.cluster import Cluster, TransferWork
from tfplace.measurement.calibration.device_figures import OpFigures
from tfplace.measurement.calibration.link_figures import BusyFigures, LinkFigures

NamePair = tuple[str, str]
Kind = tuple[str, str, bool]


def transfer_work(
    cluster: Cluster,
    senders: Mapping[NamePair, BusyFigures],
    receivers: Mapping[NamePair, BusyFigures],
) -> TransferWork | None:
    """f8[D, D] seconds, fixed and per byte, of each end; None where none was seen to take anything.

    Args:
      cluster: the devices, in order.
      senders: {(source, target): what a transfer takes of the source}.
      receivers: {(source, target): what a transfer takes of the target}.
    """
    work = TransferWork.none(len(cluster.devices))
    index = {name: d for d, name in enumerate(cluster.device_names)}
    kinds = {pair: kind_of_pair(cluster, pair) for pair in senders}
    for kind in set(kinds.values()):
        pairs = [pair for pair in senders if kinds[pair] == kind]
        for ends, fixed, per_byte in (
            (senders, work.sender_seconds, work.sender_seconds_per_byte),
            (receivers, work.receiver_seconds, work.receiver_seconds_per_byte),
        ):
            figures = [ends[pair] for pair in pairs]
            shared = shared_fixed_seconds(figures)
            if shared is None:
                continue
            slope = shared_seconds_per_byte(figures, shared)
            for pair in pairs:
                at = index[pair[0]], index[pair[1]]
                fixed[at], per_byte[at] = shared, slope
    return work if any(np.any(array) for array in vars(work).values()) else None


def kind_of_pair(cluster: Cluster, pair: NamePair) -> Kind:
    """Links of one kind: between the same types of devices, within a host or between hosts."""
    names = cluster.device_names
    source, target = (cluster.devices[names.index(name)] for name in pair)
    return source.type, target.type, source.host == target.host


def shared_fixed_seconds(figures: Sequence[BusyFigures]) -> float | None:
    """What one transfer of the smallest size takes, the median of all links.

    None where fewer than half of the links show that anything is taken.
    """
    seen = [busy.transfer_seconds for busy in figures if busy.fit is not None]
    if 2 * len(seen) < len(figures) or not seen:
        return None
    return max(float(np.median([seconds[min(seconds)] for seconds in seen])), 0.0)


def shared_seconds_per_byte(figures: Sequence[BusyFigures], fixed_seconds: float) -> float:
    """The slope of least absolute relative residuals through a given fixed part, >= 0.

    It minimises sum |t_i - fixed - slope n_i| / t_i over all links' sizes but the smallest: the
    median of (t_i - fixed) / n_i where size i weighs n_i / t_i.
    """
    rows = [
        (size, seconds)
        for busy in figures
        for size, seconds in sorted(busy.transfer_seconds.items())[1:]
        if seconds > 0
    ]
    if not rows:
        return 0.0
    size, seconds = np.array(rows, dtype=np.float64).T
    slopes = (seconds - fixed_seconds) / size
    order = np.argsort(slopes)
    weight = np.cumsum((size / seconds)[order])
    median = slopes[order][np.searchsorted(weight, weight[-1] / 2)]
    return max(float(median), 0.0)


LEAST_R_SQUARED = 0.9
MOST_UNSURE = 0.25
"""The most that half the width of a figure's interval may be, as a share of the figure."""
MOST_APART = 100.0
"""By what factor figures of links of one kind, in both directions, may differ."""
REPEATS = 2
"""How often links whose figures can't be trusted are measured again."""


@dataclasses.dataclass(frozen=True)
class TrustedLinks:
    """Links' figures, as far as they can be had.

    Attributes:
      links: of all links; those that are refused as they were measured last.
      refused: {link: why its figures are not used}.
    """

    links: Mapping[NamePair, LinkFigures]
    refused: Mapping[NamePair, str]

    def for_all(self, like: Mapping[NamePair, NamePair]) -> "TrustedLinks":
        """The same for links that are {link: which measured one it is like}."""
        return TrustedLinks(
            {pair: self.links[measured] for pair, measured in like.items()},
            {pair: self.refused[each] for pair, each in like.items() if each in self.refused},
        )


def measured_links(
    cluster: Cluster,
    pairs: Sequence[NamePair],
    ops: Mapping[str, OpFigures],
    measure: Callable[[NamePair], LinkFigures],
) -> TrustedLinks:
    """Measures links, and those again whose figures can't be trusted.

    Args:
      pairs: (source, target) of each link.
      ops: what streams through a device's memory.
    """
    links = {pair: measure(pair) for pair in pairs}
    refused = doubts(cluster, ops, links)
    for _ in range(REPEATS):
        if not refused:
            break
        links |= {pair: measure(pair) for pair in refused}
        refused = doubts(cluster, ops, links)
    return TrustedLinks(links, refused)


def doubts(
    cluster: Cluster, ops: Mapping[str, OpFigures], links: Mapping[NamePair, LinkFigures]
) -> dict[NamePair, str]:
    """{link: what is wrong with its figures}, without those that can be trusted."""
    found = {}
    by_kind = by_key((kind_of_pair(cluster, pair), link) for pair, link in links.items())
    for pair, link in links.items():
        same = by_kind[kind_of_pair(cluster, pair)]
        if why := _fit_doubt(link) or _memory_doubt(pair, ops, link) or _apart_doubt(link, same):
            found[pair] = why
    return found


def _fit_doubt(link: LinkFigures) -> str:
    fit = link.fit
    if fit.r_squared < LEAST_R_SQUARED:
        return f"no line fits its sizes (R2 {fit.r_squared:.2f})"
    for words, value, interval in (
        ("seconds of a byte are", fit.seconds_per_unit, fit.slope_ci95),
        ("latency is", fit.fixed_seconds, fit.fixed_ci95),
    ):
        if interval is None or interval[1] - interval[0] <= 2.0 * MOST_UNSURE * value:
            continue
        if value == 0.0:
            return f"its {words} lost in noise"
        low, high = (number / value for number in interval)
        return f"its {words} only known to between {low:.2f} and {high:.2f} of what was seen"
    return ""


def _memory_doubt(pair: NamePair, ops: Mapping[str, OpFigures], link: LinkFigures) -> str:
    rates = [ops[end].stream_bytes_per_second for end in pair if end in ops]
    most = min((rate for rate in rates if rate), default=np.inf)
    if link.bytes_per_second <= most:
        return ""
    return (
        f"{link.bytes_per_second / 1e9:.3g} GB/s are more than its ends' memory moves "
        f"({most / 1e9:.3g} GB/s)"
    )


def _apart_doubt(link: LinkFigures, same: Sequence[LinkFigures]) -> str:
    for words, value, others in (
        ("rates", link.bytes_per_second, [each.bytes_per_second for each in same]),
        ("latencies", link.latency_seconds, [each.latency_seconds for each in same]),
    ):
        middle = float(np.median(others))
        apart = [max(value, other) / max(min(value, other), 1e-30) for other in others]
        is_far = max(value, middle) >= np.sqrt(MOST_APART) * max(min(value, middle), 1e-30)
        if max(apart) >= MOST_APART and (is_far or len(same) == 2):
            return f"{words} of links of its kind are {max(apart):.0f} times apart"
    return ""


def figures_to_use(cluster: Cluster, trusted: TrustedLinks) -> dict[NamePair, LinkFigures]:
    """{link: its own figures, or the median of its kind's where its own are refused}.

    A refused link without a trusted one of its kind is not there: it stays as it was assumed.
    """
    used = {pair: link for pair, link in trusted.links.items() if pair not in trusted.refused}
    by_kind = by_key((kind_of_pair(cluster, pair), link) for pair, link in used.items())
    for pair in trusted.refused:
        if others := by_kind.get(kind_of_pair(cluster, pair)):
            rate = float(np.median([each.bytes_per_second for each in others]))
            latency = float(np.median([each.latency_seconds for each in others]))
            used[pair] = dataclasses.replace(
                others[0], bytes_per_second=rate, latency_seconds=latency
            )
    return used
