"""Compiling in children while the model is read, where this machine has not compiled it yet."""

import contextlib
import logging
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphs.host.child import Child, start_child
from graphs.host.compiled import cache_folder, is_noted, note
from graphs.problem import Problem
from tfplace.progress import Phases, Progress

# On two busy cores it takes half a minute; where it takes longer than this, something is wrong.
TIME_LIMIT_SECONDS = 300.0

_log = logging.getLogger("tfplace")


class CompilingAhead:
    """Children that compile."""

    def __init__(self, children: Sequence[Child] = ()) -> None:
        self._children = children

    def wait(self, phases: Phases, progress: Progress) -> None:
        """Waits for their end, as the phase "compile"; what they leave is compiled when used."""
        if not self._children:
            return
        phases.begin("compile")
        if any(child.process.poll() is None for child in self._children):
            progress.say("compiling the simulator (once on this machine)")
        deadline = time.monotonic() + TIME_LIMIT_SECONDS
        for child in self._children:
            try:
                if child.process.wait(deadline - time.monotonic()):
                    _log.warning("compiling ahead failed, %s; it is done later", child.end_text())
            except subprocess.TimeoutExpired:
                _log.warning("compiling ahead took over %g s; it is done later", TIME_LIMIT_SECONDS)
        self.end()

    def end(self) -> None:
        """Ends the children, whatever they do."""
        for child in self._children:
            child.end()
        self._children = ()


def compiling_ahead(
    cluster: str, is_to_be_measured: bool = False
) -> contextlib.AbstractContextManager[CompilingAhead]:
    """Starts to compile what a search on a `--cluster` will need, if that has to be done."""
    return compiling_kind(expected_kind(cluster, is_to_be_measured))


@contextlib.contextmanager
def compiling_kind(kind: str) -> Iterator[CompilingAhead]:
    """The same for a kind of problems.

    Where machine code can't be kept, nothing is started: every process compiles for itself.
    """
    parts = [part for part in PARTS if cache_folder() is not None and not is_compiled(kind, part)]
    warm_up = "tfplace.compilation.warm_up"
    compiling = CompilingAhead(
        [start_child(warm_up, [kind, part], needs_tensorflow=False) for part in parts]
    )
    try:
        yield compiling
    finally:
        compiling.end()


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
