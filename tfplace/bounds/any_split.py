"""What no placement beats, into however many shards the step is split (docs/bounds.md)."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from graphs.problem import Problem
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.bounds.number_range import NumberRange
from tfplace.bounds.step_roles import StepRoles, step_roles

MOST_CUTS, MOST_OPS = 12, 400_000
"""How often a range is cut in two, at most, and how many ops all these bounds may visit."""


@dataclasses.dataclass(frozen=True)
class RangeBound:
    """What holds for some numbers of shards.

    Attributes:
      first, last: the least and the greatest of them.
      lower_bound_seconds: of every placement of a step of so many shards.
    """

    first: int
    last: int
    lower_bound_seconds: float


def any_split_bounds(steps: Mapping[int, Problem], batch: int) -> list[RangeBound]:
    """Bounds for all numbers of shards, up to a shard for each entry of the batch.

    The range with the least bound is cut in two as long as it is of several numbers, and so often.

    None where only the unsplit step was read.

    Args:
      steps: {number of shards: the step's problem on one cluster}; 1 is among them.
      batch: entries of the batch, B.
    """
    split = [step_roles(steps[shards]) for shards in sorted(steps) if shards > 1]
    if not split:
        return []
    ranges = [NumberRange(*each, split, batch) for each in _ranges(steps[1], split, batch)]
    bounds = [RangeBound(1, 1, lower_bound_seconds(steps[1])), *map(_bound, ranges)]
    known = {1}
    for _ in range(min(MOST_CUTS, MOST_OPS // split[-1].step.num_ops)):
        least = min(range(len(bounds)), key=lambda number: bounds[number].lower_bound_seconds)
        here = bounds[least]
        if here.first == here.last:
            if here.first in known:
                break
            known.add(here.first)
            if here.first in steps:
                bounds[least] = _at_least(here, lower_bound_seconds(steps[here.first]))
            continue
        parts = ranges[least - 1].cut()
        ranges[least - 1 : least] = parts
        bounds[least : least + 1] = [
            _at_least(_bound(part), bounds[least].lower_bound_seconds) for part in parts
        ]
    return bounds


def least_of(bounds: Sequence[RangeBound]) -> float | None:
    """What holds for any number of shards; None where there are no bounds."""
    return min((each.lower_bound_seconds for each in bounds), default=None)


def _bound(of: NumberRange) -> RangeBound:
    return RangeBound(of.first, of.last, of.lower_bound_seconds())


def _at_least(bound: RangeBound, seconds: float) -> RangeBound:
    """A bound of some numbers, which are among those of another one."""
    return dataclasses.replace(bound, lower_bound_seconds=max(bound.lower_bound_seconds, seconds))


def _ranges(
    whole: Problem, split: Sequence[StepRoles], batch: int
) -> Iterator[tuple[int, int, StepRoles, StepRoles]]:
    """First and last of the numbers that were read or lie between two, the step read for the first
    or the last one before it, and the step of the last or the last one that was read."""
    first = split[0].num_shards
    if first > 2:
        yield 2, first - 1, _whole(whole, split[0]), split[0]
    for lower, upper in itertools.pairwise(split):
        yield lower.num_shards, lower.num_shards, lower, lower
        if upper.num_shards > lower.num_shards + 1:
            yield lower.num_shards + 1, upper.num_shards - 1, lower, upper
    most = split[-1]
    yield most.num_shards, most.num_shards, most, most
    if batch > most.num_shards:
        yield most.num_shards + 1, batch, most, most


def _whole(problem: Problem, split: StepRoles) -> StepRoles:
    """The unsplit step with the roles of a split one; what gathers there is another op here."""
    gathered = {
        role[:2] for role, gathers in zip(split.roles, split.gathers, strict=True) if gathers
    }
    is_copy = {role[:2]: role[2] for role in split.roles if role[:2] not in gathered}
    own = step_roles(problem)
    roles = [
        (name, kind, is_copy[name, kind]) if (name, kind) in is_copy else (name, "", False)
        for name, kind, _ in own.roles
    ]
    return dataclasses.replace(own, roles=roles)
