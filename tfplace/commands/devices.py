"""`tfplace devices`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.commands.from_flags import print_json, quiet_tensorflow


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Lists the named clusters and the devices of the one asked for."""
    quiet_tensorflow(values.verbosity)
    from rich.table import Table

    from graphs.clusters.cluster_file import cluster_to_json
    from graphs.clusters.discovery import find_cluster
    from graphs.clusters.named_clusters import named, names
    from tfplace.report.text import console
    from tfplace.units_text import bytes_text

    cluster = find_cluster(values.cluster)
    if values.format == "json":
        print_json({"cluster": cluster_to_json(cluster), "named_clusters": list(names())})
        return 0
    out = console()
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"cluster {cluster.name}",
                  title_justify="left")  # fmt: skip
    for name in ("device", "memory", "slots", "efficiency", "runs"):
        table.add_column(name)
    for device in cluster.devices:
        runs = "every op" if device.type == "CPU" else "ops with a GPU kernel"
        table.add_row(
            device.name,
            bytes_text(device.memory_bytes),
            str(device.slots),
            f"{device.efficiency:g}",
            runs,
        )
    out.print(table)
    if cluster.num_devices > 1:
        out.print(f"links: {cluster.communication} channels")
    listed = Table(box=None, padding=(0, 2, 0, 0), title="named clusters", title_justify="left")
    for name in ("name", "devices", "memory of one GPU"):
        listed.add_column(name)
    for name in names():
        gpus = [device for device in named(name).devices if device.type == "GPU"]
        listed.add_row(name, f"1 CPU, {len(gpus)} GPUs", bytes_text(gpus[0].memory_bytes))
    out.print(listed)
    out.print("also: workers:N, gpu_split:N, a cluster file .json, tf_config")
    return 0
