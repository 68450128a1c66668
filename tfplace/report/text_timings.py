"""What `tfplace measure` prints, and `optimize` of its real runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console

from graphs.counted import counted
from tfplace.choosing.compare import PLACED, Comparison
from tfplace.choosing.compare_memory import MemoryPeak
from tfplace.measurement.timing import Timing
from tfplace.report.text import print_facts
from tfplace.units_text import bytes_text, seconds_text


def print_comparison(comparison: Comparison, out: Console) -> None:
    """Prints step times that were measured side by side."""
    print_facts(comparison_facts(comparison), out)


def print_memory(memory: Mapping[str, Mapping[str, MemoryPeak] | str], out: Console) -> None:
    """Prints peak memory, predicted beside measured."""
    print_facts((("memory", text) for text in _peaks(memory)), out)


def comparison_facts(comparison: Comparison, is_kept: bool = False) -> Iterator[tuple[str, str]]:
    """Step times, the speed-up with its interval, and what disturbed the runs.

    Args:
      comparison: what was measured.
      is_kept: whether what was `placed` has lost, so that the baseline is kept.
    """
    for tried in comparison.tried:
        seconds = seconds_text(tried.measured_seconds)
        measured = "" if tried.measured_seconds is None else f"measured {seconds}, "
        predicted = f"predicted {seconds_text(tried.predicted_seconds)}"
        yield "tried", f"{tried.name}: {predicted}, {measured}{tried.why}"
    for names, timing in same_timings(comparison):
        lost = " (not kept)" if is_kept and names == PLACED else ""
        yield "measured", f"{names}{lost}: {_timing_text(timing)}"
    if comparison.baseline and not comparison.is_with_itself:
        low, high = comparison.speedup_ci95
        yield (
            "speed-up",
            f"{comparison.speedup:.2f}x over {comparison.baseline} "
            f"(95 % interval {low:.2f} to {high:.2f}), through {comparison.through}",
        )
        yield "", f"placed against {comparison.baseline}: {comparison.verdict}"
    yield from (("noise", sentence) for sentence in comparison.noise)


def same_timings(comparison: Comparison) -> list[tuple[str, Timing | str]]:
    """("given and single", timing): names of one placement, which was timed once, together."""
    names_of: dict[str, list[str]] = {}
    for name in comparison.timings:
        names_of.setdefault(comparison.same_as.get(name, name), []).append(name)
    return [
        (" and ".join(filter(None, [", ".join(names[:-1]), names[-1]])), comparison.timings[first])
        for first, names in names_of.items()
    ]


def _timing_text(timing: Timing | str) -> str:
    if isinstance(timing, str):
        return f"could not run: {timing}"
    return (
        f"{seconds_text(timing.median_seconds)} a step (p10 {seconds_text(timing.p10)}, "
        f"p90 {seconds_text(timing.p90)}, {counted(timing.runs, 'run')})"
    )


def _peaks(memory: Mapping[str, Mapping[str, MemoryPeak] | str]) -> Iterator[str]:
    for name, peaks in memory.items():
        if isinstance(peaks, str):
            yield f"{name}: could not run: {peaks}"
            continue
        for device, peak in peaks.items():
            known = peak.measured_bytes
            told = "not counted there" if known is None else f"{bytes_text(known)} measured"
            if peak.allocator_bytes not in (None, known):
                told += f" ({bytes_text(peak.allocator_bytes)} in the allocator's chunks)"
            yield f"{name}: {device}: {bytes_text(peak.predicted_bytes)} predicted, {told}"
