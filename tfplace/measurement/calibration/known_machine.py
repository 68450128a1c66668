"""What is known of this machine: measured once, kept as a cluster file, checked before use.

A short calibration measures one device and link of each kind. What it found holds for this host,
processor and TensorFlow only; one probe tells whether it still does.
"""

import dataclasses
import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import graphs.late_tensorflow as tf
from graphs.cluster import Cluster, Interval
from graphs.clusters.cluster_file import cluster_to_json, read_cluster
from graphs.errors import ClusterError, OutputError
from graphs.host.whole_file import write_whole
from tfplace.measurement.calibration.calibrating import SHORT, Calibration, calibrate
from tfplace.measurement.calibration.probe_graphs import ping_pong
from tfplace.measurement.calibration.probing import Prober
from tfplace.measurement.calibration.trusted_links import TrustedLinks, figures_to_use
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.training_run import StepLimits

VERSION = 2
"""Counts up when what is kept, or how it is found, changes its meaning."""
SHORT_STEPS = StepLimits(warmup_steps=1, min_steps=5, max_steps=15, timeout_seconds=10.0)
SHORT_SECONDS = 5.0
"""Spent in steps; starting processes and preparing graphs takes as long again."""
PROBE_BYTES, PROBE_HOPS = 1 << 16, 9
AGAIN_SECONDS = 3600.0
"""After noise has spoilt figures, none are measured for so long: each try takes half a minute."""
FITS_WITHIN = 2.0
"""By what factor a round trip may take longer, or less long, than the kept figures say."""

_log = logging.getLogger("tfplace")
Tell = Callable[[str], None]


def known_machine(cluster: Cluster, folder: Path, tell: Tell) -> Path | None:
    """The cluster file with what this machine's devices and links were measured to be.

    What is kept is used if one probe still agrees; else the machine is measured anew. Where noise
    spoils that, it is not tried again for an hour.

    Args:
      cluster: as `find_cluster` gives it; present, with assumed figures.

    Returns:
      The file; where noise has spoilt the figures, that of the assumed ones with what earlier real
      runs have taught; None where there is none, or nothing could be measured or written.
    """
    path, assumed = folder / _file_name(cluster), assumed_file(cluster, folder)
    try:
        if path.exists():
            tell(f"checking what is known of {cluster.name} with one probe")
            if (kept := _readable(path)) is not None and fits(kept):
                return path
            tell(f"{cluster.name} is no longer what it was: measuring it again")
            path.unlink(missing_ok=True)
        elif assumed.exists() and time.time() < assumed.stat().st_mtime + AGAIN_SECONDS:
            return assumed
        else:
            tell(f"getting to know {cluster.name}: its devices and links are measured once")
        calibration = calibrate(cluster, SHORT_SECONDS, SHORT_STEPS, effort=SHORT)
        if why := spoilt(calibration):
            _log.warning("%s stays as it was assumed: %s", cluster.name, why)
            if not assumed.exists():
                keep_taught(cluster, assumed, {})
            os.utime(assumed)
            return assumed
        assumed.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, calibration.cluster)
    except (ClusterError, OutputError, OSError) as error:
        _log.warning("%s stays as it was assumed: %s", cluster.name, error)
        return assumed if assumed.exists() else None
    return path


def assumed_file(cluster: Cluster, folder: Path) -> Path:
    """Where what real runs taught of a machine is kept whose figures could not be measured."""
    return folder / _file_name(cluster).replace(".json", ".assumed.json")


def keep_taught(cluster: Cluster, file: Path, taught: Mapping[str, Interval]) -> None:
    """Keeps with a cluster's figures what real runs have shown them to miss.

    The file stays as old as it was: that says when the machine was last measured, or tried to be.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.stat() if file.exists() else None
        _write(file, dataclasses.replace(cluster, taught=taught))
        if before is not None:
            os.utime(file, (before.st_atime, before.st_mtime))
    except (ClusterError, OutputError, OSError) as error:
        _log.warning("what real runs taught of this machine is not kept: %s", error)


def _write(file: Path, cluster: Cluster) -> None:
    text = json.dumps(cluster_to_json(cluster), indent=2) + "\n"
    write_whole(file, lambda opened: opened.write(text.encode()))


def fits(cluster: Cluster) -> bool:
    """Whether a round trip between the first two devices takes what the cluster's figures say.

    Raises:
      ClusterError: its devices could not be started, or failed.
    """
    source, target = cluster.device_names[:2]
    probes = {hops: ping_pong(source, target, PROBE_BYTES, hops) for hops in (1, PROBE_HOPS)}
    with MeasuringProcess(cluster, all_seconds=SHORT.most_seconds) as process:
        seconds = Prober(process, cluster, SHORT_STEPS).time(probes, 1.0)
    took = float(np.median(seconds[PROBE_HOPS] - seconds[1])) / (PROBE_HOPS - 1)
    said = 2 * cluster.link_latency[0, 1] + PROBE_BYTES / cluster.link_bytes_per_second[0, 1]
    return bool(said / FITS_WITHIN <= took <= said * FITS_WITHIN)


def spoilt(calibration: Calibration) -> str:
    """Why a calibration should not be used; empty where it should."""
    trusted = TrustedLinks(calibration.links, calibration.refused)
    used = figures_to_use(calibration.cluster, trusted)
    for pair, why in calibration.refused.items():
        if pair not in used:  # nor is another link of its kind trusted
            return f"the link from {pair[0]} to {pair[1]}: {why}"
    if calibration.cluster.transfer_work is None:
        return "what transfers take of the devices at their ends drowned in noise"
    return ""


def _readable(path: Path) -> Cluster | None:
    """What the file says; None where it is damaged."""
    try:
        return read_cluster(str(path))
    except ClusterError as error:
        _log.warning("%s", error)
        return None


def _file_name(cluster: Cluster) -> str:
    """Of what this cluster is on this machine."""
    about = {
        "version": VERSION,
        "cluster": cluster_to_json(cluster),
        "host": platform.node(),
        "processor": _processor(),
        "cores": sorted(os.sched_getaffinity(0)),
        "tensorflow": tf.__version__,
    }
    text = json.dumps(about, sort_keys=True)
    name = cluster.name.replace(":", "_").replace("/", "_")
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("model name")), platform.machine())
