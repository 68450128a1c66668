"""Child process of `compare_runs`: runs the unsplit and the split step in float64 and compares."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from graphs.errors import one_line
from graphs.host.parent import Parent
from rewrite.agreement import DOUBLE, NARROW, OWN, WideAgreement, is_finite, largest, most_apart
from rewrite.split.prove.runs.messages import CompareRequest, RunsCompared
from rewrite.split.prove.runs.session import WideStep, nudged, random_start

Values = dict[str, np.ndarray]


def main(parent: Parent) -> None:
    """Takes a CompareRequest; sends RunsCompared, and before each phase what it is."""
    parent.tell(compare(parent.request, lambda phase: parent.tell(RunsCompared(phase=phase))))


def compare(
    request: CompareRequest, tell: Callable[[str], None] = lambda phase: None
) -> RunsCompared:
    """Runs both steps, and the unsplit one once more, nudged."""
    tell("running the unsplit step")
    try:
        unsplit = _UnsplitRun(request, is_wide=True)
    except Exception:  # whatever a user's model raises; in float64 it may not run
        try:
            unsplit = _UnsplitRun(request, is_wide=False)
        except Exception as error:
            return RunsCompared(why_not=f"the unsplit step does not run: {one_line(error)}")
    tell("running the split step")
    own = request.split
    split = WideStep(own.graph_def, own.exact, unsplit.is_wide, request.tables, own.pieces)
    try:
        other = _run(split, request, request.split.fetches, unsplit.start)
    except Exception as error:
        how = f"the split step: only it does not run: {one_line(error)}"
        return RunsCompared(differing=[how], narrow_ops=split.narrow_ops)
    result = _compared(unsplit.first, unsplit.second, other, unsplit.agreement)
    return dataclasses.replace(result, narrow_ops=split.narrow_ops)


class _UnsplitRun:
    """The unsplit step, run twice.

    Attributes:
      step: as it runs.
      is_wide: whether in float64; in its own types where it runs only so.
      agreement: when a value of another run is the same.
      start: values of the variables.
      first, second: what it gives from them, and from values a rounding error away.
    """

    def __init__(self, request: CompareRequest, is_wide: bool):
        self.is_wide = is_wide
        self.step = WideStep(request.given.graph_def, request.given.exact, is_wide, request.tables)
        self.start, self.first = _finite_run(self.step, request)
        self.agreement = OWN if not is_wide else NARROW if self.step.narrow_ops else DOUBLE
        nearby = nudged(self.start, self.agreement.rounding)
        self.second = _run(self.step, request, request.given.fetches, nearby)


def _finite_run(given: WideStep, request: CompareRequest) -> tuple[Values, Values]:
    """Values of the variables with which most is finite in the unsplit step, and what it gives."""
    best: tuple[Values, Values] | None = None
    fewest = 0
    for is_signed in (True, False):
        start = random_start(given.variables, is_signed)
        try:
            values = _run(given, request, request.given.fetches, start)
        except Exception:  # the root of a negative moment may lead where a step fails
            if is_signed or best is not None:
                continue
            raise
        bad = sum(not is_finite(value) for value in values.values())
        if best is None or bad < fewest:
            best, fewest = (start, values), bad
        if not bad:
            break
    assert best is not None
    return best


def _run(step: WideStep, request: CompareRequest, fetches: Sequence[str], start: Values) -> Values:
    """{name: value} of all steps' fetched tensors, called as in the unsplit step, and variables."""
    fetched, after = step.run(fetches, request.feeds, start, request.num_steps)
    values = {
        f"{name} of step {number + 1}": np.asarray(value)
        for number, row in enumerate(fetched)
        for name, value in zip(request.given.fetches, row, strict=True)
        if value is not None
    }
    return {**values, **{f"variable {name}": np.asarray(value) for name, value in after.items()}}


def _compared(
    first: Values, second: Values, other: Values, agreement: WideAgreement
) -> RunsCompared:
    compared, not_compared, differing = [], [], []
    biggest = max((largest(value) for value in first.values()), default=0.0)
    agreement = dataclasses.replace(agreement, largest=biggest)
    most = 0.0
    for name, value in first.items():
        if name not in other:
            differing.append(f"{name}: the split step has none")
            continue
        tolerance = agreement.tolerance(value, second[name])
        apart = most_apart(value, other[name])
        if tolerance is None and apart > 0:
            why = "rounding errors alone change it" if is_finite(value) else "it is not finite"
            not_compared.append(f"{name}: {why}")
        elif tolerance is not None and not apart <= tolerance:
            differing.append(f"{name}: differs by {apart:.3g}, values are to {largest(value):.3g}")
        else:
            compared.append(name)
            most = max(most, agreement.relative(apart, value))
    differing += [f"{name}: only the split step has it" for name in other if name not in first]
    return RunsCompared(compared, not_compared, differing, max_relative_difference=most)
