"""`tfplace devices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from tfplace.commands.outcome import print_result

if TYPE_CHECKING:
    from rich.console import Console

    from graphs.cluster import Cluster


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Lists the named clusters and the devices of the one asked for."""
    from graphs.clusters.cluster_file import cluster_to_json
    from graphs.clusters.discovery import find_cluster
    from graphs.clusters.named_clusters import names

    cluster = find_cluster(values.cluster)
    result = {"cluster": cluster_to_json(cluster), "named_clusters": list(names())}
    print_result(values, result, lambda out: _print(out, cluster))
    return 0


def _print(out: Console, cluster: Cluster) -> None:
    from rich.table import Table

    from graphs.clusters.named_clusters import named, names
    from tfplace.units_text import bytes_text

    def table(title: str, *columns: str) -> Table:
        return Table(*columns, box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")

    devices = table(f"cluster {cluster.name}", "device", "memory", "slots", "efficiency", "runs")
    for device in cluster.devices:
        devices.add_row(
            device.name,
            bytes_text(device.memory_bytes),
            str(device.slots),
            f"{device.efficiency:g}",
            "every op" if device.type == "CPU" else "ops with a GPU kernel",
        )
    out.print(devices)
    if cluster.num_devices > 1:
        out.print(f"links: {cluster.communication} channels")
    clusters = table("named clusters", "name", "devices", "memory of one GPU")
    for name in names():
        gpus = [device for device in named(name).devices if device.type == "GPU"]
        clusters.add_row(name, f"1 CPU, {len(gpus)} GPUs", bytes_text(gpus[0].memory_bytes))
    out.print(clusters)
    out.print("also: workers:N, gpu_split:N, a cluster file .json, tf_config")
