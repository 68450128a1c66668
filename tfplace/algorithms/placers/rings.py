"""Devices in a ring: each has a quick way to the next.

What all shards need goes from shard to shard on one host (decision 062), so shards one after
another should lie on devices with a quick link between. GPUs of a host with an uneven mesh have
several kinds of links: in a DGX-1 with V100, of 48, 24 and 12 GB/s. A ring in the order of their
numbers has two of the slowest; there is one that has none but the fastest.
"""

from __future__ import annotations

import itertools

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import working_devices

MOST_DEVICES = 8
"""Of a host; all their orders are tried. More of them hang on one switch, and are alike."""


def in_a_ring(problem: Problem) -> list[int]:
    """All working devices; those of a host in the order whose links take least time for a byte.

    Each host keeps its places, and the order of its devices where no other is quicker.
    """
    devices = working_devices(problem).tolist()
    host_of = problem.device_tasks
    on_host: dict[str, list[int]] = {}
    for device in devices:
        on_host.setdefault(host_of[device], []).append(device)
    with np.errstate(divide="ignore"):
        seconds = 1.0 / problem.link_bytes_per_second
    rings = {host: iter(_ring(each, seconds)) for host, each in on_host.items()}
    return [next(rings[host_of[device]]) for device in devices]


def _ring(devices: list[int], seconds: FloatArray) -> list[int]:
    """The ring that is shortest, of equals the first; it begins with the first device."""
    if not 3 < len(devices) <= MOST_DEVICES:
        return devices
    orders = np.array(list(itertools.permutations(devices[1:])), dtype=np.int64)
    rings = np.hstack([np.full((len(orders), 1), devices[0]), orders])
    length = seconds[rings, np.roll(rings, -1, axis=1)].sum(axis=1)
    is_shortest = length <= length.min() * (1.0 + 1e-9)
    return rings[int(is_shortest.argmax())].tolist()
