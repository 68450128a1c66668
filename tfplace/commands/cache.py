"""`tfplace cache [--clear]`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.commands.from_flags import cost_cache_directory, print_json, quiet_tensorflow


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Lists the costs kept between runs, or removes them all."""
    quiet_tensorflow(values.verbosity)
    from rich.table import Table

    from tfplace.preparing.cost_cache import CostCache, age_seconds
    from tfplace.report.report import plain
    from tfplace.report.text import console
    from tfplace.units_text import bytes_text

    directory = cost_cache_directory(values)
    cache = CostCache(directory)
    entries = cache.clear() if values.clear else cache.entries()
    if values.format == "json":
        print_json({"directory": directory, "cleared": values.clear, "entries": plain(entries)})
        return 0
    out = console()
    if values.clear:
        size = bytes_text(sum(entry.num_bytes for entry in entries))
        out.print(f"removed {len(entries)} entries, {size}, from {directory}")
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"costs kept in {directory}",
                  title_justify="left")  # fmt: skip
    for name in ("costs", "model", "nodes", "device", "TensorFlow", "size", "hours ago"):
        table.add_column(name)
    for entry in entries:
        about = entry.description
        table.add_row(
            about.get("kind", "damaged"),
            about.get("model", ""),
            about.get("nodes", ""),
            about.get("on", "any"),
            about.get("tensorflow", ""),
            bytes_text(entry.num_bytes),
            f"{age_seconds(entry) / 3600:.1f}",
        )
    out.print(table if entries else f"no costs are kept in {directory}")
    return 0
