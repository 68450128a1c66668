"""Finds which axis of each fed input is the batch."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import ModelError, ShapesRefusedError, UsageError
from graphs.flat_graph import FlatGraph
from graphs.host.did_you_mean import nearest
from graphs.names import data_inputs, op_of, with_index
from graphs.source_model import TensorSpec

NO_AXIS = -1
MOST_READINGS = 4
"""Of so many sizes, the largest, that few inputs have is seen what they split."""
_PRIMES = [p for p in range(11, 1000) if all(p % q for q in range(2, p))]
"""Sizes that no others are multiples of."""


def read_batch_axes(texts: Sequence[str]) -> dict[str, int]:
    """{input: axis} of "NAME=AXIS"; UsageError: a text is none, or two contradict each other."""
    axes: dict[str, int] = {}
    for text in texts:
        name, _, axis = text.rpartition("=")
        if not name or not axis.lstrip("-").isdigit() or int(axis) < NO_AXIS:
            raise UsageError(
                f"reading --batch_axis {text!r}: wanted NAME=AXIS, an input and which of its axes "
                "is the batch, counted from 0; -1 for an input that is not split"
            )
        if axes.setdefault(name, int(axis)) != int(axis):
            raise UsageError(
                f"reading --batch_axis {text!r}: found {name}={axes[name]} before; wanted one axis "
                "of an input; leave one of the two out"
            )
    return axes


def candidates(
    feeds: Sequence[TensorSpec], open_axes: Mapping[str, Sequence[int]], told: Mapping[str, int]
) -> list[tuple[int, dict[str, int]]]:
    """Ways to read the feeds as a batch, the likeliest first: (its size, {fed tensor: axis}).

    An axis of any size is more likely the batch than one of a fixed size, and a first one of any
    size is it for certain; the first axis is more likely than a later one, and a size that most
    inputs share than another; of equally likely sizes that of larger inputs. A first axis may be
    the batch of few inputs, a later one that fewer inputs have is none, nor is one behind a batch
    of 1. Two whole numbers are a seed, no batch, unless there is nothing else.

    Args:
      feeds: what is fed, with complete shapes.
      open_axes: {fed tensor: its axes of any size}.
      told: {fed tensor: axis} that the user named; -1: this input is not split.
    """
    sizes: Counter[int] = Counter()
    elements: Counter[int] = Counter()
    seeds = [spec for spec in feeds if _is_seed(spec, open_axes, told)]
    for spec in [spec for spec in feeds if spec not in seeds] or feeds:
        shape = spec.shape or ()
        is_one = shape[:1] == (1,) and 0 not in open_axes.get(spec.tensor, ())
        few = range(1 if is_one else min(len(shape), 2))
        for axis in [told[spec.tensor]] if spec.tensor in told else few:
            if axis != NO_AXIS and shape[axis] > 1:
                is_open = axis in open_axes.get(spec.tensor, ())
                sizes[shape[axis]] += 4 * is_open + 2 * (axis == 0) + 16 * (spec.tensor in told)
                elements[shape[axis]] += math.prod(shape)
    found = []
    for size in sorted(sizes, key=lambda size: (-sizes[size], -elements[size])):
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
    if not any(axis != NO_AXIS for axis in told.values()):
        found = _of_any_size(found, open_axes)
    firsts = {s.shape[0] for s in feeds if s.shape and s not in seeds and s.tensor not in told}
    seen = sorted(firsts)[-MOST_READINGS:]
    return [each for each in found if len(each[1]) >= len(found[0][1]) or each[0] in seen]


def _is_seed(
    spec: TensorSpec, open_axes: Mapping[str, Sequence[int]], told: Mapping[str, int]
) -> bool:
    is_said = spec.tensor in open_axes or spec.tensor in told
    return "int" in spec.dtype and tuple(spec.shape or ()) == (2,) and not is_said


def _of_any_size(
    found: list[tuple[int, dict[str, int]]], open_axes: Mapping[str, Sequence[int]]
) -> list[tuple[int, dict[str, int]]]:
    """Without readings of axes of fixed sizes, where the first axis of an input may have any.

    A later axis of any size may as well be time, and the batch fixed.
    """

    def is_open(axis_of_feed: Mapping[str, int], axes: Sequence[int]) -> bool:
        return any(a in axes and a in open_axes.get(f, ()) for f, a in axis_of_feed.items())

    if not any(is_open(axes, (0,)) for _, axes in found):
        return found
    return [each for each in found if is_open(each[1], tuple(each[1].values()))]


def apart(
    flat: FlatGraph,
    reading: tuple[int, dict[str, int]],
    open_axes: Mapping[str, Sequence[int]],
    told: Mapping[str, int],
) -> list[tuple[int, dict[str, int]]]:
    """A reading, or several of fewer inputs, where no op needs their batches to be equally large.

    Nodes and edges of a graph, or rows with labels and without, only look like one batch where no
    size is given. So all axes of this size get others, and are one batch again where the step
    doesn't run so.

    Args:
      reading: a size, and {fed tensor: its axis}, as `candidates` finds them.
      open_axes: {fed tensor: its axes of any size}.
      told: {fed tensor: axis} that the user named.
    """
    size, axis_of_feed = reading
    places = [
        (spec.tensor, axis)
        for spec in flat.feeds
        for axis in open_axes.get(spec.tensor, ())
        if (spec.shape or ())[axis] == size
    ]
    named = [place for place in places if told.get(place[0]) == place[1]]
    groups = [{*named}] if named else []
    groups += [{place} for place in places if place not in named]
    for base in (60, 1, size) if 1 < len(groups) <= len(_PRIMES) else ():
        usual = _refusals(flat, dict.fromkeys(places, base * _PRIMES[0]))
        if None not in usual:
            break
    else:  # nothing is found out
        return [reading]
    while len(groups) > 1:
        given = {base * prime: group for prime, group in zip(_PRIMES, groups, strict=False)}
        sizes = {place: length for length, group in given.items() for place in group}
        refusals = _refusals(flat, sizes)
        if len(refusals) <= len(usual):  # a function that is never run may refuse any
            break
        numbers = {int(number) for number in re.findall(r"\d+", str(refusals[-1]))} - {0}
        alike = [group for length, group in given.items() if any(n % length == 0 for n in numbers)]
        alike = alike if len(alike) > 1 else groups
        groups = [group for group in groups if group not in alike] + [set().union(*alike)]
    found = []
    for group in groups if not named else groups[:1]:
        axes = {feed: axis for feed, axis in axis_of_feed.items() if (feed, axis) in group}
        others = {f: a for f, a in sorted(group, reverse=True) if told.get(f, a) == a}
        found += [(size, {**others, **axes})] if axes else []
    return found or [reading]


def _refusals(flat: FlatGraph, sizes: Mapping[tuple[str, int], int]) -> list[str | None]:
    """What functions say against these sizes of fed axes; the step: None, then what it says."""
    feeds, refused = [], list[ModelError]()
    for spec in flat.feeds:
        shape = tuple(sizes.get((spec.tensor, a), n) for a, n in enumerate(spec.shape or ()))
        feeds.append(dataclasses.replace(spec, shape=shape))
    found: list[str | None] = []
    try:
        infer_known(dataclasses.replace(flat, feeds=feeds), through_units=True, refused=refused)
    except ModelError as error:
        refused.append(error)
        found = [None]
    return found + [each.why if isinstance(each, ShapesRefusedError) else "" for each in refused]


def small_batches(
    flat: FlatGraph, properties: TensorProperties, batch: int, axis_of_feed: Mapping[str, int]
) -> list[int]:
    """Sizes of the batches that a step takes its inputs apart into, one of which may be split.

    Gradients are accumulated so: `tf.split(x, 4)`, `x[i * 8 : (i + 1) * 8]`, or
    `tf.reshape(x, [4, 8, -1])` and a loop.
    """
    axes = {op_of(tensor): axis for tensor, axis in axis_of_feed.items()}
    first = next(iter(axes.values()))
    found: set[int] = set()
    for node in flat.graph_def.node:
        given = next((name for name in data_inputs(node) if op_of(name) in axes), "")
        axis = axes.get(op_of(given), first)
        shapes = [shape or () for shape in properties.shape_of[node.name]]
        if given and node.op == "Identity":
            axes[node.name] = axis
        elif given and node.op == "Reshape" and axis + 1 < len(shapes[0]):
            if math.prod(shapes[0][axis : axis + 2]) == batch:
                found.add(shapes[0][axis + 1])
        elif node.op in ("Split", "SplitV") or (given and node.op in ("Slice", "StridedSlice")):
            taken = properties.shape(data_inputs(node)[node.op == "Split"]) or ()
            is_of_all = axis < len(taken) and taken[axis] == batch
            found.update(shape[axis] for shape in shapes if is_of_all and axis < len(shape))
    return sorted((s for s in found if 1 < s < batch and batch % s == 0), reverse=True)


def _axis(spec: TensorSpec, size: int, open_axes: Sequence[int], told: Mapping[str, int]) -> int:
    """The axis of an input that has the batch's size; the first, an open one before a fixed one."""
    if spec.tensor in told:
        return told[spec.tensor]
    fitting = [axis for axis, length in enumerate(spec.shape or ()) if length == size]
    return next((axis for axis in fitting if axis in open_axes), (fitting or [NO_AXIS])[0])


def told_axes(
    feeds: Sequence[TensorSpec], given: Mapping[str, int], names: Mapping[str, str]
) -> dict[str, int]:
    """{fed tensor: axis} of what the user named.

    Args:
      feeds: what is fed, with complete shapes.
      given: {name of an input: axis}; -1: this input is not split.
      names: {name: fed tensor}, as `names_of_inputs` finds them.

    Raises:
      UsageError: a name is no input's, or an axis is none of its axes.
    """
    by_tensor = {with_index(spec.tensor): spec for spec in feeds}
    told = {}
    for name, axis in given.items():
        spec = by_tensor.get(names.get(name, with_index(name)))
        if spec is None:
            ours = [n for n, tensor in names.items() if tensor in by_tensor and ":" not in n]
            raise UsageError(
                f"reading --batch_axis {name}={axis}: the step has no input {name!r}, it has "
                f"{_listed(by_tensor, names)}{nearest(name, ours)}"
            )
        rank = len(spec.shape or ())
        if axis >= rank:
            raise UsageError(
                f"reading --batch_axis {name}={axis}: wanted one of its {rank} axes, counted from "
                f"0, or -1; its shape is {list(spec.shape or ())}"
            )
        told[spec.tensor] = axis
    return told


def _listed(tensors: Iterable[str], names: Mapping[str, str]) -> str:
    """The inputs, each with its other name: "y (train_step_y)"."""
    texts = []
    for tensor in tensors:
        others = {name for name, of in names.items() if of == tensor} - {tensor, op_of(tensor)}
        name = op_of(tensor)
        texts.append(f"{min(others)} ({name})" if others else name)
    return ", ".join(texts) or "none"
