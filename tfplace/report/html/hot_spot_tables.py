"""Tables of the page: heaviest ops, largest transfers, why ops sit on the CPU."""

from __future__ import annotations

from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.hot_spots import (
    CHOSEN,
    NO_KERNEL,
    PINNED,
    TIED,
    heaviest_ops,
    heaviest_types,
    largest_transfers,
    queued_seconds,
    tensor_name,
)
from tfplace.report.html.elements import colours, name, section, swatch, table, text
from tfplace.units_text import bytes_text, seconds_text

MAX_ROWS = 12
REASONS = {
    NO_KERNEL: "no GPU has a kernel for them, with these dtypes",
    PINNED: "pinned there by --pin or --keep_devices",
    TIED: "they share a colocation group with ops that must be there",
    CHOSEN: "chosen: a GPU could run them, the placement found nothing gained by it",
}


def hot_spots(explained: Explained) -> str:
    """The sections of the heaviest ops, the largest transfers, and the ops on the CPU."""
    return "\n".join((_heaviest(explained), _transfers(explained), _on_cpu(explained)))


def _heaviest(explained: Explained) -> str:
    schedule, graph = explained.schedule, explained.problem.graph
    takes = schedule.op_end - schedule.op_start
    ops = [
        (name(graph.op_names[op]), name(graph.op_types[op]),
         _device(explained, schedule.device_of_op[op]), seconds_text(takes[op]),
         f"{100 * takes[op] / (schedule.makespan or 1.0):.1f} %")
        for op in heaviest_ops(schedule, MAX_ROWS)
    ]  # fmt: skip
    types = [
        (name(kind), f"{num_ops:,}", seconds_text(seconds))
        for kind, num_ops, seconds in heaviest_types(explained.problem, schedule, MAX_ROWS)
    ]
    return section(
        "heavy",
        "Heaviest ops",
        table(("op", "type", "device", "takes", "of the step"), ops, numbers_from=3),
        "<details><summary>By type, all devices together</summary>",
        table(("type", "ops", "take"), types),
        "</details>",
    )


def _transfers(explained: Explained) -> str:
    moved, queued = (
        explained.schedule.transfers,
        queued_seconds(explained.problem, explained.schedule),
    )
    rows = [
        (name(tensor_name(explained.problem, moved.tensor[i])), _device(explained, moved.source[i]),
         _device(explained, moved.target[i]), bytes_text(moved.bytes[i]),
         seconds_text(moved.arrival[i] - moved.start[i]), seconds_text(queued[i]))
        for i in largest_transfers(explained.schedule, MAX_ROWS)
    ]  # fmt: skip
    head = ("tensor", "from", "to", "size", "takes", "queued")
    return section(
        "transfers",
        "Largest transfers",
        table(head, rows, numbers_from=3) if rows else "<p>Nothing is moved between devices.</p>",
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


def _device(explained: Explained, device: int) -> str:
    return swatch(colours(explained.problem)[device], explained.names[device])
