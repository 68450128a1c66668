"""What is said of real runs: by `tfplace measure`, and by `optimize` and its rounds."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console

from graphs.by_key import by_key
from graphs.counted import counted
from graphs.machine_numbers import CONTENTION, DISPATCH, ENDS, LATENCY, RATE, SPEED, START
from tfplace.choosing.real_runs.peak_memory import MemoryPeak
from tfplace.choosing.run_results import PLACED, Comparison, Round
from tfplace.measurement.timing import Timing
from tfplace.report.text import print_facts
from tfplace.units_text import bytes_text, seconds_text, share_text


def print_comparison(comparison: Comparison, out: Console) -> None:
    """Prints step times that were measured side by side."""
    print_facts(comparison_facts(comparison), out)


def print_memory(memory: Mapping[str, Mapping[str, MemoryPeak] | str], out: Console) -> None:
    """Prints peak memory, predicted beside measured."""
    print_facts((("memory", text) for text in _peaks(memory)), out)


def comparison_facts(comparison: Comparison, is_kept: bool = False) -> Iterator[tuple[str, str]]:
    """Step times, the speed-up with its interval, and what disturbed the runs.

    Args:
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
    names_of = by_key((comparison.same_as.get(name, name), name) for name in comparison.timings)
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


_FACTORS = {
    LATENCY: "a transfer's latency is {} times as long as taken",
    RATE: "links move {} times the bytes per second",
    ENDS: "a transfer takes {} times as much of the devices at its ends",
    CONTENTION: "devices that share memory slow each other down {} times as much",
}
_SECONDS = {DISPATCH: "an op takes {} more to start", START: "a step takes {} more to start"}


def rounds_facts(rounds: Sequence[Round]) -> Iterator[tuple[str, str]]:
    """How many rounds there were, how far predictions were off, and what is known now."""
    if not rounds:
        return
    count = sum(len(each.measured) for each in rounds)
    first = _missed(rounds[0])
    told = f"{counted(len(rounds), 'round')} of real runs, {counted(count, 'placement')} timed"
    if first is not None:
        told += f"; before the first predictions missed by {share_text(first)}"
    last = _missed(rounds[-1])
    if len(rounds) > 1 and last is not None:
        told += f", before the last by {share_text(last)}"
    yield "rounds", told
    yield from (("taught", sentence) for sentence in taught(rounds[-1]))


def taught(last: Round) -> list[str]:
    """A sentence for each number whose interval says that it is not what it was taken to be."""
    return [
        _sentence(name, *numbers)
        for name, numbers in last.corrected.items()
        if (numbers[1] > 0.0 if name in _SECONDS else numbers[1] > 1.0 or numbers[2] < 1.0)
    ]


def _sentence(name: str, value: float, low: float, high: float) -> str:
    if name in _SECONDS:
        middle, least, most = (seconds_text(number) for number in (value, low, high))
        return f"{_SECONDS[name].format(middle)} ({least} to {most})"
    pattern = _FACTORS.get(name, f"{name.removeprefix(SPEED)} is {{}} times as fast as taken")
    return f"{pattern.format(f'{value:.2g}')} ({low:.2g} to {high:.2g})"


def _missed(each: Round) -> float | None:
    """The median of |predicted / measured - 1|; None where nothing ran."""
    errors = [
        abs(step.predicted_seconds / step.measured_seconds - 1.0)
        for step in each.measured
        if step.measured_seconds
    ]
    return float(np.median(errors)) if errors else None
