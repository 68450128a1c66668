"""Which shards lie on one device and on one host, where tensors go round from shard to shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rewrite.split.states import Place

MOST_DIRECT = 4
"""So many devices of one host are sent a tensor, and send their terms, directly: going round takes
longer there than waiting for each other."""
MOST_AT_ONCE, BLOCK_BYTES = 1 << 24, 1 << 22
"""What holds more than the first goes from shard to shard in blocks of rows of the second size."""
FIRST_AT_ONCE, FIRST_BLOCK_BYTES = 1 << 21, 1 << 20
"""Likewise for the variables that are needed first; larger blocks take longer until they have been
everywhere, smaller ones are more messages."""

Ring = Mapping[int, Sequence[Sequence[int]]]
"""{host: the shards of each of its devices}; empty where tensors are sent directly."""


def ring_of(place_of_shard: Sequence[Place]) -> Ring:
    """Where large tensors go round: over several hosts of several devices, or over many devices.

    Args:
      place_of_shard: [M] host and device of each shard.
    """
    devices: dict[Place, list[int]] = defaultdict(list)
    for shard, place in enumerate(place_of_shard):
        devices[place].append(shard)
    hosts: dict[int, list[list[int]]] = defaultdict(list)
    for (host, _), shards in sorted(devices.items()):
        hosts[host].append(shards)
    is_ring = 1 < len(hosts) < len(devices) or len(devices) > MOST_DIRECT
    return dict(hosts) if is_ring else {}
