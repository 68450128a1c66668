"""What rounds of real runs taught, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graphs.counted import counted
from graphs.machine_numbers import (
    CONTENTION,
    DISPATCH,
    ENDS,
    LATENCY,
    RATE,
    SPEED,
    START,
)
from tfplace.choosing.rounds.plan import Round
from tfplace.units_text import seconds_text, share_text

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
        if _is_off(name, *numbers)
    ]


def _is_off(name: str, value: float, low: float, high: float) -> bool:
    return low > 0.0 if name in _SECONDS else low > 1.0 or high < 1.0


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
