"""The kinds of problems, each with machine code of its own, and the parts of that code."""

from __future__ import annotations

from pathlib import Path

from graphs.host.compiled import is_noted, note
from graphs.problem import Problem

RULES_1_TO_6, WITH_EXECUTOR = KINDS = ("rules_1_to_6", "with_executor")

ANNEALING, STARTS_AND_BOUNDS = PARTS = ("annealing", "starts_and_bounds")
"""They share no compiled function, so that two processes can compile them side by side."""


def kind_of(problem: Problem) -> str:
    """Which of KINDS a problem is of."""
    return RULES_1_TO_6 if problem.executor is None else WITH_EXECUTOR


def expected_kind(cluster: str, is_to_be_measured: bool = False) -> str:
    """The same, from a `--cluster` value, before anything is read: files that were calibrated.

    Several workers of this host will be calibrated if the machine is to be measured first.
    """
    if not cluster.endswith(".json"):
        are_several = cluster.startswith("workers:") and cluster != "workers:1"
        return WITH_EXECUTOR if are_several and is_to_be_measured else RULES_1_TO_6
    try:
        is_calibrated = b'"sender_busy_seconds"' in Path(cluster).read_bytes()
    except OSError:  # whoever reads it for good says so
        is_calibrated = False
    return WITH_EXECUTOR if is_calibrated else RULES_1_TO_6


def is_compiled(kind: str, part: str) -> bool:
    """Whether a part's machine code is kept on this machine, for these sources."""
    return is_noted(f"{kind}-{part}")


def note_compiled(kind: str, part: str) -> None:
    """Notes that it is."""
    note(f"{kind}-{part}")
