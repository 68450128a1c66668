"""Calibrates a cluster that is present: measures it, and replaces assumed figures."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.errors import ClusterError
from tfplace.measurement.calibration import link_figures
from tfplace.measurement.calibration.device_figures import (
    COPIES,
    Contention,
    OpFigures,
    StepFigures,
    hosts,
    measure_contention,
    measure_ops,
    measure_steps,
)
from tfplace.measurement.calibration.probing import PROBE_STEPS, Prober
from tfplace.measurement.calibration.trusted_links import (
    NamePair,
    TrustedLinks,
    figures_to_use,
    kind_of_pair,
    measured_links,
    transfer_work,
)
from tfplace.measurement.machine_load import share_of_others
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.presence import require_present
from tfplace.measurement.training_run import StepLimits
from tfplace.measurement.workers import EXECUTOR_THREADS

Measured = TypeVar("Measured", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Effort:
    """What is measured.

    Attributes:
      link_sizes: bytes that go to and fro over a link; empty: as the number of links allows.
      busy_counts: {bytes: transfers beside products}; see `link_figures`.
      copies: of the probes of contention.
      one_of_a_kind: whether equal devices, and links between such, are measured once.
      most_seconds: the longest that all of it may take.
      is_given_up: whether it ends as soon as others are seen to use the machine.
    """

    link_sizes: Sequence[int] = ()
    busy_counts: Mapping[int, int] = dataclasses.field(
        default_factory=lambda: link_figures.BUSY_COUNTS
    )
    copies: int = COPIES
    one_of_a_kind: bool = False
    most_seconds: float = math.inf
    is_given_up: bool = False

    def devices(self, cluster: Cluster) -> Mapping[str, str]:
        """{device: the measured one that it is like}."""
        kinds = {d.name: (d.type, d.cores, d.memory_bytes) for d in cluster.devices}
        return self._first_of_kind(kinds)

    def links(self, cluster: Cluster, pairs: Iterable[NamePair]) -> Mapping[NamePair, NamePair]:
        """{link: the measured one that it is like}; there and back may differ where ends do."""
        kinds = self.devices(cluster)
        ends = {pair: (kinds[pair[0]], kinds[pair[1]]) for pair in pairs}
        return self._first_of_kind({p: (kind_of_pair(cluster, p), ends[p]) for p in ends})

    def busy_links(
        self, cluster: Cluster, pairs: Iterable[NamePair]
    ) -> Mapping[NamePair, NamePair]:
        """The same for the work at both ends, which is alike both ways."""
        return self._first_of_kind({pair: kind_of_pair(cluster, pair) for pair in pairs})

    def _first_of_kind(self, kinds: Mapping[Measured, Hashable]) -> Mapping[Measured, Measured]:
        first: dict[Hashable, Measured] = {}
        for each, kind in kinds.items():
            first.setdefault(kind if self.one_of_a_kind else each, each)
        return {each: first[kind if self.one_of_a_kind else each] for each, kind in kinds.items()}


FULL = Effort()
SHORT = Effort(
    link_sizes=(64, 1 << 16, 1 << 20, 1 << 23),
    busy_counts={64: 33, 1 << 18: 17, 1 << 20: 9},
    copies=1,
    one_of_a_kind=True,
    most_seconds=25.0,
    is_given_up=True,
)
"""For the first run on a machine: about a quarter of the probes."""


# Figures are said to be doubtful above these shares: the CPU time of other processes, the spread of
# equal steps, and how far half of a link's sizes miss its line.
BUSY_MACHINE_SHARE = 0.1
NOISY_SPREAD = 0.2
POOR_RESIDUAL = 0.25
SURELY_BUSY, LOOK_SECONDS = 2.0 * BUSY_MACHINE_SHARE, 0.5
"""If others use this share of the machine, a calibration ends at once; the first look's length."""
# Shares of the budget for each stage.
_SHARES = {"steps": 0.05, "ops": 0.1, "links": 0.2, "busy": 0.5, "rule": 0.03, "memory": 0.12}


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured of a cluster.

    Attributes:
      steps: what a step costs beside its ops.
      ops: {device: figures}.
      links: {(source, target): figures}.
      senders: {(source, target): what a transfer takes of the source}.
      receivers: {(source, target): what a transfer takes of the target}.
      contention: {device: how much slower its ops get beside others of its host}.
      rule: how well each channel rule explains transfers that go at once.
      refused: {(source, target): why the link's own figures are not used}.
    """

    steps: StepFigures
    ops: Mapping[str, OpFigures]
    links: Mapping[NamePair, link_figures.LinkFigures]
    senders: Mapping[NamePair, link_figures.BusyFigures]
    receivers: Mapping[NamePair, link_figures.BusyFigures]
    contention: Mapping[str, Contention]
    rule: link_figures.RuleChoice
    refused: Mapping[NamePair, str] = dataclasses.field(default_factory=dict, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Calibration(Figures):
    """The figures, and what became of them.

    Attributes:
      cluster: with the figures in place of assumed ones.
      background_share: of the machine's CPU time, what others used meanwhile; None if unknown.
      warnings: sentences about what not to trust.
      seconds: how long it took.
    """

    cluster: Cluster
    background_share: float | None
    warnings: Sequence[str]
    seconds: float


def calibrate(
    cluster: Cluster,
    budget_seconds: float,
    limits: StepLimits = PROBE_STEPS,
    tell: Callable[[str], None] = lambda sentence: None,
    effort: Effort = FULL,
) -> Calibration:
    """Measures devices and links through TensorFlow's own runtime.

    Args:
      cluster: as `find_cluster` gives it.
      budget_seconds: about how long to measure; each figure gets at least some rounds.
      limits: how many steps of each probe are timed, and the longest that one may take.
      effort: what is measured, and what is taken to be like it.

    Raises:
      ClusterError: its devices are not here, could not be started, or failed in between.
    """
    wanted = "wanted local, workers:N, gpu_split:N, tf_config, or a file of such a cluster"
    require_present(cluster, "calibrating", wanted)
    began = time.monotonic()
    if effort.is_given_up:  # starting processes takes as long as all that is measured
        require_quiet(cluster, share_of_others(LOOK_SECONDS), SURELY_BUSY)
    with MeasuringProcess(cluster, all_seconds=effort.most_seconds) as process:
        prober = Prober(process, cluster, limits)
        figures = _measured(cluster, budget_seconds, prober, tell, effort)
        background = prober.load.background_share
    used = refused_where_busy(figures, background)
    return Calibration(
        **{**vars(figures), "refused": used.refused},
        cluster=calibrated_cluster(cluster, used),
        background_share=background,
        warnings=warnings_about(background, figures.steps.spread, figures.links, used.refused),
        seconds=time.monotonic() - began,
    )


def _measured(
    cluster: Cluster,
    budget_seconds: float,
    prober: Prober,
    tell: Callable[[str], None],
    effort: Effort,
) -> Figures:
    """Measures stage after stage, each within its share of the budget."""
    seconds = {stage: share * budget_seconds for stage, share in _SHARES.items()}
    pairs = list(itertools.permutations(cluster.device_names, 2))
    link_like = effort.links(cluster, pairs)
    measured_pairs = [pair for pair in pairs if link_like[pair] == pair]
    ops = _measured_ops(cluster, seconds["ops"], prober, tell, effort)
    known = {pair: link_figures.MeasuredLink() for pair in pairs}

    def link_of(pair: NamePair) -> link_figures.LinkFigures:
        if effort.is_given_up:
            require_quiet(cluster, prober.load.background_share, SURELY_BUSY)
        tell(f"timing transfers from {pair[0]} to {pair[1]}")
        sizes = effort.link_sizes or link_figures.sizes_of(len(pairs))
        of_link = seconds["links"] / len(measured_pairs)
        return link_figures.measure_link(*pair, sizes, prober, of_link, known[pair])

    trusted = measured_links(cluster, measured_pairs, ops, link_of).for_all(link_like)
    if effort.is_given_up:
        require_quiet(cluster, prober.load.background_share)
    busy_like = effort.busy_links(cluster, pairs)
    busy = dict.fromkeys(busy_like.values())
    senders, receivers = {}, {}
    for pair in busy:
        tell(f"timing what transfers from {pair[0]} to {pair[1]} take of both")
        of_end = seconds["busy"] / len(busy) / 2
        senders[pair], receivers[pair] = (
            link_figures.measure_busy(end, pair, ops[end], effort.busy_counts, prober, of_end)
            for end in pair
        )
    rule = link_figures.measure_rule(cluster.device_names, prober, seconds["rule"])
    contention = {}
    for host in hosts(cluster):
        tell(f"timing {len(host)} devices at once")
        slower = measure_contention(host, prober, seconds["memory"], effort.copies)
        contention.update(dict.fromkeys(host, slower))
    tell("timing steps")
    steps = measure_steps(cluster, prober, seconds["steps"])
    return Figures(
        steps,
        ops,
        trusted.links,
        {pair: senders[like] for pair, like in busy_like.items()},
        {pair: receivers[like] for pair, like in busy_like.items()},
        contention,
        rule,
        refused=trusted.refused,
    )


def _measured_ops(
    cluster: Cluster,
    budget_seconds: float,
    prober: Prober,
    tell: Callable[[str], None],
    effort: Effort,
) -> dict[str, OpFigures]:
    """{device: its ops' figures}; of devices that are alike one is measured."""
    like = effort.devices(cluster)
    num_measured = len({*like.values()})
    measured: dict[str, OpFigures] = {}
    for device in cluster.devices:
        if like[device.name] == device.name:
            tell(f"timing ops on {device.name}")
            measured[device.name] = measure_ops(device, prober, budget_seconds / num_measured)
    return {name: measured[like[name]] for name in like}


def refused_where_busy(figures: Figures, background_share: float | None) -> Figures:
    """The figures; where others use the machine, none that long probes or waking threads show.

    A program that took 30 % of one core made three of what a transfer takes of its sender, and two
    of contention; links' latencies became a quarter less, since processors did not go idle.
    """
    if background_share is None or background_share <= BUSY_MACHINE_SHARE:
        return figures
    why = f"other programs used {background_share:.0%} of this machine's CPU time"
    refused = {**dict.fromkeys(figures.links, why), **figures.refused}
    return dataclasses.replace(figures, senders={}, receivers={}, contention={}, refused=refused)


def require_quiet(
    cluster: Cluster, background_share: float | None, most: float = BUSY_MACHINE_SHARE
) -> None:
    """Raises ClusterError where what is measured further on would not be used: see above."""
    if background_share is not None and background_share > most:
        raise ClusterError(
            f"calibrating {cluster.name}: other programs used {background_share:.0%} of this "
            "machine's CPU time; calibrate when it is quiet"
        )


def calibrated_cluster(cluster: Cluster, figures: Figures) -> Cluster:
    """The cluster with measured figures; what was not measured stays as it was."""
    devices = [
        _calibrated_device(
            device, step_seconds, figures, _stream_rate_of_host(cluster, device, figures.ops)
        )
        for device, step_seconds in zip(cluster.devices, figures.steps.device_seconds, strict=True)
    ]
    latency = cluster.link_latency.copy()
    rate = cluster.link_bytes_per_second.copy()
    index = {name: d for d, name in enumerate(cluster.device_names)}
    trusted = TrustedLinks(figures.links, figures.refused)
    for (source, target), link in figures_to_use(cluster, trusted).items():
        at = index[source], index[target]
        latency[at], rate[at] = link.latency_seconds, link.bytes_per_second
    return dataclasses.replace(
        cluster,
        communication=figures.rule.rule,
        devices=tuple(devices),
        link_latency=latency,
        link_bytes_per_second=rate,
        origin=cluster.origin or cluster.name,
        step_overhead_seconds=figures.steps.overhead_seconds,
        fetch_seconds=figures.steps.fetch_seconds,
        transfer_work=transfer_work(cluster, figures.senders, figures.receivers),
    )


def _stream_rate_of_host(cluster: Cluster, device: Device, ops: Mapping[str, OpFigures]) -> float:
    """Bytes per second that an op of this device streams; 0 where that was not measured.

    It is the median of the host's equal devices, rounded to two digits, so that these stay equal.
    """
    rates = [
        ops[other.name].stream_bytes_per_second
        for other in cluster.devices
        if (other.host, other.type, other.cores) == (device.host, device.type, device.cores)
    ]
    return float(f"{np.median(rates):.1e}")


def _calibrated_device(
    device: Device, step_seconds: float, figures: Figures, stream_rate: float
) -> Device:
    ops = figures.ops[device.name]
    contention = figures.contention.get(device.name, Contention())  # 0: it shares no memory
    measured = "slots, op and step overhead measured by tfplace calibrate"
    source = device.source if measured in device.source else f"{device.source}; {measured}"
    rate = device.bandwidth_bytes_per_second
    if stream_rate:
        rate = stream_rate * ops.slots
        source = source.replace("memory bandwidth assumed", "memory bandwidth measured on streams")
    return dataclasses.replace(
        device,
        slots=ops.slots,
        bandwidth_bytes_per_second=rate,
        op_seconds=ops.op_seconds,
        step_seconds=step_seconds,
        compute_slowdown=contention.compute_slowdown,
        memory_slowdown=contention.memory_slowdown,
        executor_threads=EXECUTOR_THREADS if device.type == "CPU" else 1,
        source=source.removeprefix("; "),
    )


def warnings_about(
    background_share: float | None,
    spread: float,
    links: Mapping[NamePair, link_figures.LinkFigures],
    refused: Mapping[NamePair, str] | None = None,
) -> list[str]:
    """Sentences on what makes the figures doubtful: other work on the machine, noise, poor fits."""
    warnings = []
    if background_share is not None and background_share > BUSY_MACHINE_SHARE:
        warnings.append(
            f"other processes used {background_share:.0%} of this machine's CPU time: links, what "
            "transfers take of their ends and contention stay as they were assumed; calibrate "
            "again when it is quiet"
        )
    if spread > NOISY_SPREAD:
        warnings.append(
            f"equal steps differ by {spread:.0%} (p75 - p25 over the median): a noisy machine"
        )
    warnings += [
        f"the link from {source} to {target} is no straight line: half of its sizes miss the fit "
        f"by more than {link.fit.median_relative_residual:.0%}"
        for (source, target), link in links.items()
        if link.fit.median_relative_residual > POOR_RESIDUAL
    ]
    warnings += [
        f"what was measured of the link from {source} to {target} is not used: {why}; it has the "
        "figures of links of its kind, or those that were assumed; calibrate again when the "
        "machine is quiet"
        for (source, target), why in (refused or {}).items()
    ]
    return warnings
