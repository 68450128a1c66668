"""What `tfplace check` prints, at 80 columns."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfplace.report.device_check import DeviceCheck
from tfplace.units_text import bytes_text

MAX_ROWS = 20


def print_check(found: DeviceCheck, out: Console) -> None:
    """What the model asks for, what can't be had, memory, verdict."""
    rows = [
        ("model", f"{found.path} ({found.kind}), {found.num_ops:,} ops"),
        ("cluster", f"{found.cluster}, {len(found.memory)} devices"),
        *(
            ("asked", f"{device or 'no device'}: {count:,} ops")
            for device, count in list(found.devices_asked.items())[:MAX_ROWS]
        ),
    ]
    for bad in found.misplaced[:MAX_ROWS]:
        where = f"on {bad.asked}" if bad.asked else "anywhere"
        rows.append(("not there", f"{bad.op} ({bad.op_type}) {where}: {bad.message}"))
    if len(found.misplaced) > MAX_ROWS:
        more = len(found.misplaced) - MAX_ROWS
        rows.append(("", f"and {more:,} more ops (--format=json has all)"))
    for device, memory in found.memory.items():
        usable = bytes_text(memory.usable_bytes)
        told = "" if memory.fits else ", too much"
        rows.append(("memory", f"{device}: {bytes_text(memory.peak_bytes)} of {usable}{told}"))
    rows.append(("verdict", verdict(found)))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, Text(text))
    out.print(grid)


def verdict(found: DeviceCheck) -> str:
    """One sentence: does it run there as it says?"""
    if found.runs:
        return f"runs on {found.cluster} as its device strings say"
    full = [device for device, memory in found.memory.items() if not memory.fits]
    problems = [f"{len(found.misplaced):,} of {found.num_ops:,} ops can't run where they are asked"]
    parts = (problems if found.misplaced else []) + [f"{device} is too small" for device in full]
    return f"does not run on {found.cluster} as it is: {'; '.join(parts)}"
