"""What `tfplace inspect` prints, at 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tfplace.report.inspection import Inspection
from tfplace.units_text import bytes_text, seconds_text

MAX_ROWS = 20


def print_inspection(found: Inspection, out: Console) -> None:
    """Facts first, then the ops by type."""
    for name, text in _facts(found):
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=13)
        grid.add_column(overflow="fold")
        grid.add_row(name, text)
        out.print(grid)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("op type")
    for name in ("ops", f"time on {found.cluster}", "output"):
        table.add_column(name, justify="right")
    for row in found.op_types[:MAX_ROWS]:
        table.add_row(
            row.op_type, f"{row.num_ops:,}", seconds_text(row.seconds), bytes_text(row.output_bytes)
        )
    out.print(table)
    if len(found.op_types) > MAX_ROWS:
        out.print(f"and {len(found.op_types) - MAX_ROWS} more op types (--format=json has all)")


def _facts(found: Inspection) -> list[tuple[str, str]]:
    rows = [
        ("model", f"{found.path} ({found.kind})"),
        ("run", f"{found.mode}: {found.step_origin}"),
        *(("guessed", sentence) for sentence in found.guessed),
        ("signatures", ", ".join(found.signatures) or "none"),
        (
            "size",
            f"{found.num_ops:,} ops, {found.num_tensors:,} tensors, {found.num_edges:,} edges, "
            f"{found.num_functions:,} functions opened",
        ),
        (
            "colocation",
            f"{found.num_colocation_groups:,} groups, the largest of "
            f"{found.largest_colocation_group:,} ops",
        ),
        ("devices", _counts(found.devices_asked, "none asked for")),
        (
            "memory",
            f"variables {bytes_text(found.variable_bytes)} "
            f"(trainable {bytes_text(found.trainable_bytes)}), "
            f"constants {bytes_text(found.constant_bytes)}",
        ),
        ("FLOPs", f"{found.flops:.3g} a step"),
        ("unknown", f"{found.unknown_shapes:,} tensors of unknown size"),
        ("unpriced", _counts(found.unpriced_ops, "", "nothing")),
    ]
    if found.without_gpu_kernel:
        rows.append(("CPU only", _counts(found.without_gpu_kernel, "")))
    for name, why in list(found.units.items())[:MAX_ROWS]:
        rows.append(("unit", f"{name}: {why}"))
    for name, what in list(found.opened.items())[:MAX_ROWS]:
        rows.append(("opened", f"{name}: {what}"))
    return rows


def _counts(counts: Mapping[str, int], empty_key: str, nothing: str = "") -> str:
    shown = [f"{key or empty_key} {count:,}" for key, count in list(counts.items())[:10]]
    if len(counts) > 10:
        shown.append(f"and {len(counts) - 10} more")
    return ", ".join(shown) or nothing
