"""Beside which shard each variable is expected to lie, before it is placed.

What is handed on from shard to shard begins where the variable lies, what is added ends there.
So each variable that all shards read gets a home, in the order in which the step comes to need
them: each time where the least lies, one host after the other. Data parallelism places it there.
Wherever the search puts it then, the step computes the same.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of
from graphs.op_types import VARIABLES
from rewrite.split.merge_reads import Variable, variable_of_handle
from rewrite.split.states import Place

_MOST_STEPS = 12
"""Ops between a variable and what all shards read of it, or between a gradient and its update."""
FIRST_VARIABLES = 4
"""So many variables are the first that all shards read, and their gradients the last to be added:
no other work hides what sending them takes."""


@dataclasses.dataclass(frozen=True)
class Home:
    """Where a tensor that goes round begins or ends.

    Attributes:
      shard: beside which it lies.
      is_first: whether it is of one of the FIRST_VARIABLES.
    """

    shard: int
    is_first: bool = False


class Homes:
    """Gives variables a home."""

    def __init__(self, flat: FlatGraph, ring: Ring):
        """Begins with nothing anywhere.

        Args:
          flat: the unsplit step.
          ring: the shards of each device.
        """
        self._nodes: Mapping[str, Any] = flat.nodes
        self._users: dict[str, list[str]] = defaultdict(list)
        for node in flat.graph_def.node if ring else ():
            for name in data_inputs(node):
                self._users[op_of(name)].append(node.name)
        turns = itertools.zip_longest(*ring.values())
        self._held = {shards[0]: 0 for turn in turns for shards in turn if shards}
        self._home_of: dict[Variable | str, Home] = {}

    def of_read(self, op: str, num_bytes: int) -> Home:
        """The home of what an op reads of a variable; of anything else the first shard."""
        variable = next(self._read_by(op), None)
        if variable is None:
            return Home(next(iter(self._held)))
        if variable not in self._home_of:
            least = min(self._held, key=self._held.__getitem__)
            self._home_of[variable] = Home(least, len(self._home_of) < FIRST_VARIABLES)
            self._held[least] += num_bytes
        return self._home_of[variable]

    def of_sum(self, op: str) -> Home:
        """The home of the variable that is updated with a sum: one that all shards have read."""
        now, seen = [op], {op}
        for _ in range(_MOST_STEPS):
            now = [user for each in now for user in self._users[each] if user not in seen]
            seen.update(now)
            for user in now:
                for variable in self._handles(user):
                    if variable in self._home_of:
                        return self._home_of[variable]
        return Home(next(iter(self._held)))

    def _read_by(self, op: str) -> Iterator[Variable | str]:
        """The variable at the beginning of first inputs."""
        for _ in range(_MOST_STEPS):
            node = self._nodes[op]
            if node.op in VARIABLES:
                yield self._key(node)
                return
            names = data_inputs(node)
            if not names:
                return
            op = op_of(names[0])

    def _handles(self, op: str) -> Iterator[Variable | str]:
        for name in data_inputs(self._nodes[op]):
            node = self._nodes[op_of(name)]
            if node.op in VARIABLES:
                yield self._key(node)

    def _key(self, node: Any) -> Variable | str:
        return variable_of_handle(node) if node.op == "VarHandleOp" else str(node.name)


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
