"""Finds which axis of each fed input is the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from graphs.errors import UsageError
from graphs.host.did_you_mean import nearest
from graphs.names import op_of, with_index
from graphs.source_model import TensorSpec

NO_AXIS = -1


def read_batch_axes(texts: Sequence[str]) -> dict[str, int]:
    """{input: axis} of "NAME=AXIS".

    Raises:
      UsageError: a text is none of these.
    """
    axes = {}
    for text in texts:
        name, _, axis = text.rpartition("=")
        if not name or not axis.lstrip("-").isdigit() or int(axis) < NO_AXIS:
            raise UsageError(
                f"reading --batch_axis {text!r}: wanted NAME=AXIS, an input and which of its axes "
                "is the batch, counted from 0; -1 for an input that is not split"
            )
        axes[name] = int(axis)
    return axes


def candidates(
    feeds: Sequence[TensorSpec],
    open_axes: Mapping[str, Sequence[int]],
    given: Mapping[str, int],
) -> list[tuple[int, dict[str, int]]]:
    """Ways to read the feeds as a batch, the likeliest first: (its size, {fed tensor: axis}).

    An axis of any size is more likely the batch than one of a fixed size, the first axis more
    likely than a later one, and a size that most inputs share more likely than another.

    Args:
      feeds: what is fed, with complete shapes.
      open_axes: {fed tensor: its axes of any size}.
      given: {input or fed tensor: axis} that the user named; -1: this input is not split.

    Raises:
      UsageError: `given` names no input, or an axis that it hasn't.
    """
    told = _told(feeds, given)
    sizes: Counter[int] = Counter()
    for spec in feeds:
        shape = spec.shape or ()
        axes = [told[spec.tensor]] if spec.tensor in told else range(min(len(shape), 2))
        for axis in axes:
            if axis != NO_AXIS and shape[axis] > 1:
                is_open = axis in open_axes.get(spec.tensor, ())
                sizes[shape[axis]] += 4 * is_open + 2 * (axis == 0) + 16 * (spec.tensor in told)
    found = []
    for size, _ in sizes.most_common():
        axis_of_feed = {}
        for spec in feeds:
            axis = _axis(spec, size, open_axes.get(spec.tensor, ()), told)
            if axis != NO_AXIS:
                axis_of_feed[spec.tensor] = axis
        if axis_of_feed and all(
            (spec.shape or ())[told[spec.tensor]] == size
            for spec in feeds
            if told.get(spec.tensor, NO_AXIS) != NO_AXIS
        ):
            found.append((size, axis_of_feed))
    return found


def _axis(spec: TensorSpec, size: int, open_axes: Sequence[int], told: Mapping[str, int]) -> int:
    """The axis of an input that has the batch's size; the first, an open one before a fixed one."""
    if spec.tensor in told:
        return told[spec.tensor]
    fitting = [axis for axis, length in enumerate(spec.shape or ()) if length == size]
    return next((axis for axis in fitting if axis in open_axes), (fitting or [NO_AXIS])[0])


def _told(feeds: Sequence[TensorSpec], given: Mapping[str, int]) -> dict[str, int]:
    by_name = {op_of(spec.tensor): spec for spec in feeds}
    told = {}
    for name, axis in given.items():
        spec = by_name.get(op_of(with_index(name)))
        if spec is None:
            raise UsageError(
                f"reading --batch_axis {name}={axis}: the step has no input {name!r}, it has "
                f"{', '.join(by_name) or 'none'}{nearest(name, by_name)}"
            )
        if axis >= len(spec.shape or ()):
            raise UsageError(
                f"reading --batch_axis {name}={axis}: this input has {len(spec.shape or ())} axes, "
                "counted from 0"
            )
        told[spec.tensor] = axis
    return told
