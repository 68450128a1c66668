"""Calibrates a cluster that is present: measures it, and replaces assumed figures."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.errors import ClusterError
from tfplace.measurement.calibration.channel_rule import RuleChoice
from tfplace.measurement.calibration.contention import Contention, hosts, measure_contention
from tfplace.measurement.calibration.device_figures import (
    OpFigures,
    StepFigures,
    measure_ops,
    measure_steps,
)
from tfplace.measurement.calibration.link_figures import (
    BusyFigures,
    LinkFigures,
    measure_busy,
    measure_link,
    measure_rule,
)
from tfplace.measurement.calibration.probing import Prober, ProbingLimits
from tfplace.measurement.calibration.transfer_work import NamePair, transfer_work
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.presence import is_present

# Figures are said to be doubtful above these shares: the CPU time of other processes, the spread of
# equal steps, and how far half of a link's sizes miss its line.
BUSY_MACHINE_SHARE = 0.1
NOISY_SPREAD = 0.2
POOR_RESIDUAL = 0.25

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
    """

    steps: StepFigures
    ops: Mapping[str, OpFigures]
    links: Mapping[NamePair, LinkFigures]
    senders: Mapping[NamePair, BusyFigures]
    receivers: Mapping[NamePair, BusyFigures]
    contention: Mapping[str, Contention]
    rule: RuleChoice


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
    limits: ProbingLimits | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Calibration:
    """Measures devices and links through TensorFlow's own runtime.

    Args:
      cluster: as `find_cluster` gives it.
      budget_seconds: about how long to measure; each figure gets at least some rounds.
      limits: rounds and timeouts; by default as ProbingLimits has them.
      tell: takes a sentence about what is being measured.

    Raises:
      ClusterError: its devices are not here, could not be started, or failed in between.
    """
    if not is_present(cluster):
        raise ClusterError(
            f"calibrating {cluster.name}: its devices are not present on this machine; wanted "
            "local, workers:N, gpu_split:N, tf_config, or a file of such a cluster"
        )
    began = time.monotonic()
    with MeasuringProcess(cluster) as process:
        prober = Prober(process, cluster, limits or ProbingLimits())
        figures = _measured(cluster, budget_seconds, prober, tell)
        background = prober.load.background_share
    return Calibration(
        **vars(figures),
        cluster=calibrated_cluster(cluster, figures),
        background_share=background,
        warnings=warnings_about(background, figures.steps.spread, figures.links),
        seconds=time.monotonic() - began,
    )


def _measured(
    cluster: Cluster, budget_seconds: float, prober: Prober, tell: Callable[[str], None]
) -> Figures:
    """Measures stage after stage, each within its share of the budget."""
    seconds = {stage: share * budget_seconds for stage, share in _SHARES.items()}
    names = cluster.device_names
    pairs = list(itertools.permutations(names, 2))
    ops, links, senders, receivers = {}, {}, {}, {}
    for device in cluster.devices:
        tell(f"timing ops on {device.name}")
        ops[device.name] = measure_ops(device, prober, seconds["ops"] / len(names))
    for pair in pairs:
        tell(f"timing transfers from {pair[0]} to {pair[1]}")
        links[pair] = measure_link(*pair, len(pairs), prober, seconds["links"] / len(pairs))
        busy_seconds = seconds["busy"] / len(pairs) / 2
        senders[pair], receivers[pair] = (
            measure_busy(end, pair, ops[end], prober, busy_seconds) for end in pair
        )
    rule = measure_rule(names, prober, seconds["rule"])
    contention = {}
    for host in hosts(cluster):
        tell(f"timing {len(host)} devices at once")
        slower = measure_contention(host, prober, seconds["memory"])
        contention.update(dict.fromkeys(host, slower))
    tell("timing steps")
    steps = measure_steps(cluster, prober, seconds["steps"])
    return Figures(steps, ops, links, senders, receivers, contention, rule)


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
    for (source, target), link in figures.links.items():
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
        source=source.removeprefix("; "),
    )


def warnings_about(
    background_share: float | None, spread: float, links: Mapping[NamePair, LinkFigures]
) -> list[str]:
    """Sentences on what makes the figures doubtful: other work on the machine, noise, poor fits."""
    warnings = []
    if background_share is not None and background_share > BUSY_MACHINE_SHARE:
        warnings.append(
            f"other processes used {background_share:.0%} of this machine's CPU time: the figures "
            "are theirs too; calibrate again when it is quiet"
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
    return warnings
