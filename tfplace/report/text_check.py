"""What `tfplace check` prints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rich.console import Console

from graphs.counted import counted
from tfplace.report.device_check import DeviceCheck
from tfplace.report.split_facts import split_sentences
from tfplace.report.text import print_facts
from tfplace.units_text import bytes_text

MAX_ROWS = 20


def print_check(check: DeviceCheck, out: Console) -> None:
    """Prints what the model asks for, what can't be had, memory, and the verdict."""
    print_facts(_facts(check), out)


def _facts(check: DeviceCheck) -> Iterator[tuple[str, str]]:
    yield "model", f"{check.path} ({check.kind}), {counted(check.num_ops, 'op')}"
    yield "cluster", f"{check.cluster}, {counted(len(check.memory), 'device')}"
    if check.split is not None:
        yield from split_sentences(check.split)
    elif check.num_shards > 1:
        yield "split", f"the step came split into {check.num_shards} shards"
    for device, count in itertools.islice(check.devices_asked.items(), MAX_ROWS):
        yield "asked", f"{device or 'no device'}: {counted(count, 'op')}"
    for bad in check.misplaced[:MAX_ROWS]:
        where = f"on {bad.asked}" if bad.asked else "anywhere"
        yield "not there", f"{bad.op} ({bad.op_type}) {where}: {bad.message}"
    more = len(check.misplaced) - MAX_ROWS
    if more > 0:
        yield "", f"and {counted(more, 'more op')} (--format=json has all)"
    for device, memory in check.memory.items():
        used = f"{bytes_text(memory.peak_bytes)} of {bytes_text(memory.usable_bytes)}"
        yield "memory", f"{device}: {used}{'' if memory.fits else ', too much'}"
    yield "verdict", verdict(check)


def verdict(check: DeviceCheck) -> str:
    """One sentence: does it run there as it says?"""
    if check.runs and not any(check.devices_asked):
        return f"asks for no device, so that TensorFlow chooses on {check.cluster}; it fits there"
    if check.runs:
        return f"runs on {check.cluster} as its device strings say"
    parts = [f"{device} is too small" for device, memory in check.memory.items() if not memory.fits]
    if check.misplaced:
        count = f"{len(check.misplaced):,} of {check.num_ops:,} ops"
        parts.insert(0, f"{count} can't run where they are asked")
    return f"does not run on {check.cluster} as it is: {'; '.join(parts)}"
