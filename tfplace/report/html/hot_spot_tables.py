"""Tables of the page: heaviest ops, largest transfers, why ops sit on the CPU."""

from __future__ import annotations

from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.on_cpu import CHOSEN, NO_KERNEL, PINNED, TIED
from tfplace.report.html.elements import colours, name, section, swatch, table, text
from tfplace.units_text import bytes_text, seconds_text

REASONS = {
    NO_KERNEL: "no GPU has a kernel for them, with these dtypes",
    PINNED: "pinned there by --pin or --keep_devices",
    TIED: "they share a colocation group with ops that must be there",
    CHOSEN: "chosen: a GPU could run them, the placement found nothing gained by it",
}


def hot_spots(explained: Explained) -> str:
    """The sections of the heaviest ops, the largest transfers, and the ops on the CPU."""
    colour = colours(explained.problem)
    device = [swatch(colour[d], label) for d, label in enumerate(explained.names)]
    makespan = explained.schedule.makespan or 1.0
    ops = [
        (name(op.name), name(op.op_type), device[op.device], seconds_text(op.seconds),
         f"{100 * op.seconds / makespan:.1f} %")
        for op in explained.ops
    ]  # fmt: skip
    types = [
        (name(kind.op_type), f"{kind.num_ops:,}", seconds_text(kind.seconds))
        for kind in explained.types
    ]
    transfers = [
        (name(moved.tensor), device[moved.source], device[moved.target], bytes_text(moved.bytes),
         seconds_text(moved.seconds), seconds_text(moved.queued_seconds))
        for moved in explained.transfers
    ]  # fmt: skip
    return "\n".join(
        [
            section(
                "heavy",
                "Heaviest ops",
                table(("op", "type", "device", "takes", "of the step"), ops, numbers_from=3),
                "<details><summary>By type, all devices together</summary>",
                table(("type", "ops", "take"), types),
                "</details>",
            ),
            section(
                "transfers",
                "Largest transfers",
                table(
                    ("tensor", "from", "to", "size", "takes", "queued"), transfers, numbers_from=3
                )
                if transfers
                else "<p>Nothing is moved between devices.</p>",
            ),
            _on_cpu(explained),
        ]
    )


def _on_cpu(explained: Explained) -> str:
    if "GPU" not in explained.problem.device_types:
        return ""
    rows = [
        (text(REASONS[ops.reason]), f"{ops.num_ops:,}",
         ", ".join(f"{name(kind)} {count:,}" for kind, count in ops.types),
         seconds_text(ops.seconds), seconds_text(ops.gpu_seconds), name(ops.example))
        for ops in explained.on_cpu
    ]  # fmt: skip
    head = ("why", "ops", "types", "take", "on a GPU", "the longest")
    return section(
        "cpu",
        "Why ops sit on the CPU",
        f"<div class='words'>{table(head, rows)}</div>" if rows else "<p>No op does.</p>",
    )
