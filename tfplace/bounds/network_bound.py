"""The network bound: what other hosts do of a batch has to be sent to them, and all wait for all.

Parts of the batch are cut by one op, which lies on one site A (see Site), B being all other
devices. Let y_r be the share of role r's copies that lie on B, z_f,k the share of family f's
tensors (network_program.py) that have gone from A to B before barrier k (barriers.py), which is
passed at t_k; t_0 = 0, and the last is the step's end. Every placement's schedule obeys, for
each j < k,

* z_f,k >= y_u - y_m for every user u of f that is done before k, m being f's maker: a copy on B
  that uses what a copy on A has made is sent it first;
* t_k - t_j >= bytes / rate of all that is made after j and sent before k: it leaves A by one way;
* t_k - t_j >= the work between j and k that is on A over what A can do, and likewise for B.

What the cut makes is not sent before the cut is done: until then nothing has to leave A. A linear
program has the least end that all this leaves; it holds for any y, so for every placement, and
for any number of shards whose copies take as much together.

Work and machines are weighed as in load_bound.py: a second of class k counts w_k, all devices
together give 1 in a second, so A gives a share of it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.executor_model import wire
from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.bounds.barriers import barriers_of
from tfplace.bounds.load_bound import best_weights, least_costs, load_of
from tfplace.bounds.network_program import Family, SiteStep, families_of, least_end
from tfplace.bounds.relaxation import device_classes
from tfplace.bounds.step_roles import StepRoles
from tfplace.grouping.quotient import BoolArray

LEAST_SHARE = 0.05
"""A batch that is sent in less than this share of the bound known so far raises it by little."""
LEAST_FAMILY = 1e-3
"""Tensors that are sent in less than this share of it are not counted."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Some devices, not all.

    Attributes:
      devices: bool[D] which.
      bytes_per_second: no transfer from them to others holds the way out for less than its bytes
        over this.
    """

    devices: BoolArray
    bytes_per_second: float


def sites_of(problem: Problem) -> list[Site]:
    """The smallest site of each device; [] where some device has none."""
    rate = problem.link_bytes_per_second
    if problem.executor is not None:
        rate = wire(problem.executor, problem.link_latency, rate)[1]
    size, apart = problem.num_devices, ~np.eye(problem.num_devices, dtype=bool)
    site_of: dict[int, Site] = {}
    for channel in np.unique(problem.link_channels[problem.link_channels >= 0]).tolist():
        holds = (problem.link_channels == channel).any(axis=2) & apart
        inside = holds.any(axis=1)
        out = inside[:, None] & ~inside[None, :]
        if not out.any() or not holds[out].all():
            continue
        for device in np.flatnonzero(inside).tolist():
            if device not in site_of or site_of[device].devices.sum() > inside.sum():
                site_of[device] = Site(inside, float(rate[out].max()))
    if len(site_of) < size:
        return []
    return list({site.devices.tobytes(): site for site in site_of.values()}.values())


def network_bound(
    roles: StepRoles, work: FloatArray, soonest: FloatArray, at_least: float
) -> float:
    """The bound in seconds; 0.0 where it can't raise the one that there is.

    Args:
      roles: of a split step.
      work: f8[R, D] seconds of all ops of a role at least, inf where they may not lie.
      soonest: f8[R] when the first op of a role is done at least.
      at_least: seconds, a bound that there is.
    """
    if roles.num_shards < 2 or not 0.0 < at_least < np.inf:
        return 0.0
    found = [
        (site, families_of(roles, LEAST_FAMILY * at_least * site.bytes_per_second))
        for site in _alike_once(sites_of(roles.step), roles)
    ]
    cuts = [_cut(families) for _, families in found]
    if not all(
        cut and cut.num_bytes >= LEAST_SHARE * at_least * site.bytes_per_second
        for cut, (site, _) in zip(cuts, found, strict=True)
    ):
        return 0.0
    barriers, may_lie = barriers_of(roles), np.isfinite(work)
    cost, given = _weighed(roles, work)
    ends = [
        least_end(SiteStep(
            barriers, families, cut, cost / at_least, soonest / at_least,
            np.any(may_lie[:, site.devices], axis=1), np.any(may_lie[:, ~site.devices], axis=1),
            float(given[site.devices].sum()),
            np.array([f.num_bytes for f in families]) / site.bytes_per_second / at_least,
        ))
        for cut, (site, families) in zip(cuts, found, strict=True)
        if cut and may_lie[cut.maker, site.devices].any()
    ]  # fmt: skip
    return at_least * min(ends, default=0.0)


def _cut(families: Sequence[Family]) -> Family | None:
    """The largest family of parts that are cut of one tensor."""
    cuts = [family for family in families if family.is_cut]
    return max(cuts, key=lambda family: family.num_bytes, default=None)


def _alike_once(sites: Sequence[Site], roles: StepRoles) -> list[Site]:
    """One of the sites that have as many devices of each class and the same rate."""
    class_of = device_classes(roles.step).class_of_device
    alike = {(*np.bincount(class_of[s.devices]), s.bytes_per_second): s for s in sites}
    return list(alike.values())


def _weighed(roles: StepRoles, work: FloatArray) -> tuple[FloatArray, FloatArray]:
    """f8[R] what all devices together need for a role's work; f8[D] what each can give of 1."""
    step = dataclasses.replace(roles.problem, op_seconds=work)
    classes = device_classes(step)
    _, weights = best_weights(load_of(classes, step.graph, np.ones(step.num_ops, dtype=bool)))
    cost = least_costs(classes.seconds, weights[0])
    given = (weights[0].per_second * classes.slots)[classes.class_of_device]
    return np.where(np.isfinite(cost), cost, 0.0), given
