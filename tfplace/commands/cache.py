"""`tfplace cache [--clear]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from tfplace.commands.from_flags import cost_cache_directory
from tfplace.commands.outcome import print_result

if TYPE_CHECKING:
    from rich.console import Console

    from tfplace.preparing.cost_cache import CacheEntry


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Lists the costs kept between runs, or removes them all."""
    from tfplace.preparing.cost_cache import CostCache

    directory = cost_cache_directory(values)
    cache = CostCache(directory)
    entries = cache.clear() if values.clear else cache.entries()
    result = {"directory": directory, "cleared": values.clear, "entries": entries}
    print_result(values, result, lambda out: _print(out, **result))
    return 0


def _print(
    out: Console, directory: str | None, cleared: bool, entries: Sequence[CacheEntry]
) -> None:
    from rich.table import Table

    from tfplace.preparing.cost_cache import age_seconds
    from tfplace.units_text import bytes_text

    if cleared:
        size = bytes_text(sum(entry.num_bytes for entry in entries))
        out.print(f"removed {len(entries)} entries, {size}, from {directory}")
        return
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
