"""Sites: devices with one way out to all others, as a host's GPUs have its network card."""

from __future__ import annotations

import dataclasses

import numpy as np

from graphs.executor_model import wire
from graphs.problem import Problem
from tfplace.grouping.quotient import BoolArray


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
