"""What transfers take of the devices at their ends, from what was measured link by link.

A link's figures alone are noisy: 33 transfers of 64 bytes take 2 ms of a chain of 30. What is
done for one is the same code on the same processor whichever way the tensor goes, so links between
equal devices share what was seen.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import Cluster, TransferWork
from tfplace.measurement.calibration.link_figures import BusyFigures

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
