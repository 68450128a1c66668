"""`tfplace cache [--clear]`."""

import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from graphs.counted import counted
from tfplace.commands.from_flags import cost_cache_directory
from tfplace.commands.outcome import plain_table, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Lists the costs kept between runs, or removes them all, and compiled code with them."""
    from graphs.host.compiled import clear_compiled
    from tfplace.preparing.cost_cache import CostCache
    from tfplace.units_text import bytes_text

    directory = cost_cache_directory(values)
    cache = CostCache(directory)
    entries = cache.clear() if values.clear else cache.entries()
    if values.clear and directory:
        clear_compiled(Path(directory))
    out = text_output(values, {"directory": directory, "cleared": values.clear, "entries": entries})
    if out is None:
        return 0
    if values.clear:
        size = bytes_text(sum(entry.num_bytes for entry in entries))
        removed = f"{counted(len(entries), 'entry', 'entries')}, {size}, from {directory}"
        out.print(f"removed {removed}, and all compiled code")
        return 0
    columns = ("costs", "model", "nodes", "device", "TensorFlow", "size", "hours ago")
    table = plain_table(f"costs kept in {directory}", *columns)
    for entry in entries:
        about = entry.description
        table.add_row(
            about.get("kind", "damaged"),
            about.get("model", ""),
            about.get("nodes", ""),
            about.get("on", "any"),
            about.get("tensorflow", ""),
            bytes_text(entry.num_bytes),
            f"{max(time.time() - entry.written, 0.0) / 3600:.1f}",
        )
    out.print(table if entries else f"no costs are kept in {directory}")
    return 0
