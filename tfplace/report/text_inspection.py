"""What `tfplace inspect` prints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from rich.console import Console

from graphs.counted import counted
from tfplace.report.inspection import Inspection
from tfplace.report.split_facts import split_sentences
from tfplace.report.text import print_facts, table
from tfplace.units_text import bytes_text, count_text, seconds_text

MAX_ROWS = 20
MAX_COUNTS = 10


def print_inspection(inspection: Inspection, out: Console) -> None:
    """Prints facts first, then the ops by type."""
    print_facts(_facts(inspection), out, name_width=13)
    types = table(("op type", "ops", f"time on {inspection.cluster}", "output"))
    for row in inspection.op_types[:MAX_ROWS]:
        types.add_row(
            row.op_type, f"{row.num_ops:,}", seconds_text(row.seconds), bytes_text(row.output_bytes)
        )
    out.print(types)
    more = len(inspection.op_types) - MAX_ROWS
    if more > 0:
        out.print(f"and {counted(more, 'more op type')} (--format=json has all)")


def _facts(model: Inspection) -> Iterator[tuple[str, str]]:
    yield "model", f"{model.path} ({model.kind})"
    yield "run", f"{model.mode}: {model.step_origin}"
    yield from (("guessed", sentence) for sentence in model.guessed)
    yield "signatures", ", ".join(model.signatures) or "none"
    yield (
        "size",
        f"{counted(model.num_ops, 'op')}, {counted(model.num_tensors, 'tensor')}, "
        f"{counted(model.num_edges, 'edge')}, {counted(model.num_functions, 'function')} opened",
    )
    largest = f"the largest of {counted(model.largest_colocation_group, 'op')}"
    yield "colocation", f"{counted(model.num_colocation_groups, 'group')}, {largest}"
    yield "devices", _counts(model.devices_asked, "none asked for")
    yield (
        "memory",
        f"variables {bytes_text(model.variable_bytes)} "
        f"(trainable {bytes_text(model.trainable_bytes)}), "
        f"constants {bytes_text(model.constant_bytes)}",
    )
    yield "FLOPs", f"{count_text(model.flops)} a step"
    yield "unknown", f"{counted(model.unknown_shapes, 'tensor')} of unknown size"
    yield "unpriced", _counts(model.unpriced_ops) or "nothing"
    if model.without_gpu_kernel:
        yield "CPU only", _counts(model.without_gpu_kernel)
    if model.split is not None:
        yield from split_sentences(model.split)
    for name, sentences in (("unit", model.units), ("opened", model.opened)):
        for op, what in itertools.islice(sentences.items(), MAX_ROWS):
            yield name, f"{op}: {what}"


def _counts(counts: Mapping[str, int], empty_key: str = "") -> str:
    """ "MatMul 12, Add 3"; `empty_key` stands for the key ""."""
    shown = [
        f"{key or empty_key} {count:,}"
        for key, count in itertools.islice(counts.items(), MAX_COUNTS)
    ]
    if len(counts) > MAX_COUNTS:
        shown.append(f"and {len(counts) - MAX_COUNTS} more")
    return ", ".join(shown)
