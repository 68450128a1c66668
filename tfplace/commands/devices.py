"""`tfplace devices`."""

from collections.abc import Sequence

from absl import flags

from tfplace.commands.outcome import plain_table, say_starting, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Lists the named clusters and the devices of the one asked for."""
    from graphs.clusters.cluster_file import cluster_to_json
    from graphs.clusters.discovery import find_cluster
    from graphs.clusters.named_clusters import named, names
    from tfplace.units_text import bytes_text

    if values.cluster == "local":
        say_starting(values.verbosity)
    cluster = find_cluster(values.cluster)
    result = {"cluster": cluster_to_json(cluster), "named_clusters": list(names())}
    out = text_output(values, result)
    if out is None:
        return 0
    columns = ("device", "memory", "slots", "efficiency", "runs")
    table = plain_table(f"cluster {cluster.name}", *columns)
    for device in cluster.devices:
        table.add_row(
            device.name,
            bytes_text(device.memory_bytes),
            str(device.slots),
            "by class" if device.precision else f"{device.efficiency:g}",
            "every op" if device.type == "CPU" else "ops with a GPU kernel",
        )
    out.print(table)
    if cluster.num_devices > 1:
        out.print(f"links: {cluster.communication} channels")
    listed = plain_table("named clusters", "name", "devices", "memory of one GPU")
    for name in names():
        gpus = [device for device in named(name).devices if device.type == "GPU"]
        listed.add_row(name, f"1 CPU, {len(gpus)} GPUs", bytes_text(gpus[0].memory_bytes))
    out.print(listed)
    out.print("also: workers:N, gpu_split:N, a cluster file .json, tf_config")
    return 0
