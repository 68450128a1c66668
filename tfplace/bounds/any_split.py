"""The step time that no placement can beat, into however many shards the step is split.

Let c(b) be what a copy of an op takes on some device for b entries of the batch of B. Prices are
nondecreasing and convex in b, c(b) / b is nonincreasing, and so from the steps that were read it is
known what c(b) is at least for any other b (number_range.py). For every M in [m, m'] then,

* work: M copies take B c(k) / k together at least, where k = ceil(B / m) is the largest shard
  that m has, and so do units of several ops on the class of devices that is cheapest by any
  weights, whose least price has a falling ratio to b, too;
* path: a copy takes c(floor(B / m')) at least, m''s least shard; tensors likewise;
* what is whole takes what it takes in the step read last before m; what gathers tensors of several
  shards takes no less together than there, since they only grow in number;
* terms of a sum are added otherwise in other numbers of shards: at once, two at a time, or from
  device to device, in blocks. All ops that add a tensor's terms take no less together, the more
  shards there are; when each is done is not known, so no path goes through them.

So the bounds of this folder hold for one shard of m' and the whole ops of it (step_roles.py), with
the work of all M copies wherever the work of the step is counted, and the seconds of one copy
wherever ops wait for each other (number_range.py). What is shared may be handed on from device to
device. The step as it came is bounded for itself. Every M > 1 splits the same ops: roles that a
step which was read does not have are left out. A range is the weaker, the longer it is; so the one
with the least bound is cut in two until that is one number's, of which a step that was read has a
bound of its own. The least over all ranges of M holds for any M.
"""

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
                own = lower_bound_seconds(steps[here.first])
                bounds[least] = _at_least(here, own)
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
