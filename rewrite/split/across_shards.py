"""Combines the terms of all shards, and gives all shards a whole tensor: between hosts once.

Where shards lie on several hosts, a gradient of each shard would cross the network to its variable,
and a weight would cross it for each device. So a large sum goes from host to host, each of which
adds its own terms, and ends where the variable is. A large whole tensor begins there and goes from
host to host, and on each from shard to shard, by Identities, which TensorFlow keeps where they read
from another device. Each sends to one other alone, so that no two wait for one network card.
Very large tensors go in blocks of rows: the next one has the first while it gets the second. Which
shards share a host has to be said before the step is placed; wherever these ops are placed then,
they compute the same.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rewrite.split.decide import Decisions
from rewrite.split.node_writer import NodeWriter

_COMBINE_OPS = {"max": "Maximum", "min": "Minimum", "prod": "Mul",
                "all": "LogicalAnd", "any": "LogicalOr"}  # fmt: skip
_NOT_SENT = frozenset({"resource", "variant", "string"})
"""Handles, and what has another size than it seems."""


@dataclasses.dataclass(frozen=True)
class Way:
    """How a large tensor goes from host to host.

    Attributes:
      home: the shard beside which it begins or ends.
      rows: the rows of each block; () where it goes in one piece.
      rank: how many dimensions it has.
    """

    home: int
    rows: Sequence[int] = ()
    rank: int = 1


class AcrossShards:
    """Adds what combines tensors of all shards, or hands a tensor on to them.

    Attributes:
      hosts: {host: its shards}; empty where tensors don't go from host to host.
    """

    def __init__(self, writer: NodeWriter, decisions: Decisions):
        self.hosts = shards_of_hosts(decisions.host_of_shard)
        self._host_of = decisions.host_of_shard
        self._writer = writer
        self._in_turn = decisions.sums_in_turn

    def combined(
        self,
        combine: str,
        name: str,
        parts: Sequence[str],
        dtype: str,
        is_large: bool,
        way: Way | None,
    ) -> str:
        """The value of a partial tensor.

        Args:
          combine: as Partial has it.
          name: of the op that makes it, if that is free.
          parts: its terms, one of each shard.
          dtype: theirs.
          is_large: whether one arrives later than a message that holds nothing.
          way: from host to host; None where all terms are combined at once.
        """
        if combine != "sum":
            types: dict[str, Any] = {} if combine in ("all", "any") else {"T": dtype}
            return self._in_a_chain(_COMBINE_OPS[combine], name, parts, types)
        if way is None:
            return self._summed(name, parts, dtype, is_large)
        if not way.rows:
            return self._summed_from_host_to_host(name, parts, dtype, way.home, name)
        blocks: list[list[str]] = [[] for _ in parts]
        for shards in self.hosts.values():
            for turn, shard in enumerate(shards):
                own = f"{name}/rows/shard_{shard}"
                first = (turn + 1) % len(shards)
                blocks[shard] = self._in_blocks(own, parts[shard], dtype, way, shard, first)
        summed = []
        for number, terms in enumerate(zip(*blocks, strict=True)):
            scope = f"{name}/block_{number}"
            last = f"{scope}/host_{self._host_of[way.home]}"
            summed.append(self._summed_from_host_to_host(scope, terms, dtype, way.home, last))
        return self._put_together(name, summed, dtype, None)

    def handed_on(
        self, whole: str, name: str, dtype: str, num_shards: int, way: Way | None
    ) -> list[str]:
        """The name of a whole tensor for each shard."""
        if way is None or dtype in _NOT_SENT:
            return [whole] * num_shards
        if not way.rows:
            return self._handed_from_shard_to_shard(whole, name, dtype, way.home)
        blocks = [
            self._handed_from_shard_to_shard(block, f"{name}/block_{number}", dtype, way.home)
            for number, block in enumerate(self._in_blocks(f"{name}/rows", whole, dtype, way))
        ]
        return [
            self._put_together(f"{name}/all/shard_{shard}", here, dtype, shard)
            for shard, here in enumerate(zip(*blocks, strict=True))
        ]

    def _from(self, home: int) -> list[list[int]]:
        """The shards of each host in the order in which they send to each other, from one on."""
        hosts = list(self.hosts.values())
        at = next(number for number, shards in enumerate(hosts) if home in shards)
        turn = hosts[at].index(home)
        return [[*row[turn:], *row[:turn]] for row in (*hosts[at:], *hosts[:at])]

    def _handed_from_shard_to_shard(
        self, whole: str, name: str, dtype: str, home: int
    ) -> list[str]:
        """The name of a tensor for each shard."""
        on_shard, first = {}, whole
        for shards in self._from(home):
            here = first
            for shard in shards:
                here = self._writer.op("Identity", f"{name}/shard_{shard}", [here], T=dtype)
                on_shard[shard] = here
            first = on_shard[shards[0]]
        return [on_shard[shard] for shard in range(len(on_shard))]

    def _summed_from_host_to_host(
        self, name: str, terms: Sequence[str], dtype: str, home: int, last_name: str
    ) -> str:
        so_far: list[str] = []
        *others, last = [*self._from(home)[1:], self._from(home)[0]]
        for shards in others:
            host = self._host_of[shards[0]]
            here = [*(terms[shard] for shard in sorted(shards)), *so_far]
            so_far = [self._summed(f"{name}/host_{host}", here, dtype, is_large=True)]
        own = [terms[shard] for shard in sorted(last)]
        return self._summed(last_name, [*own, *so_far], dtype, is_large=True)

    def _in_blocks(
        self,
        name: str,
        tensor: str,
        dtype: str,
        way: Way,
        shard: int | None = None,
        first: int = 0,
    ) -> list[str]:
        """The blocks of a tensor, cut out one after the other from the first on.

        Devices of one host that begin with different ones send to different ones: block b is added
        on the host's device b, and starts again with its first.
        """
        ends = [0, *np.cumsum(way.rows).tolist()]
        numbers = range(len(way.rows))
        most = len(next(iter(self.hosts.values())))
        blocks = [""] * len(ends[1:])
        for number in sorted(numbers, key=lambda n: ((n - first) % most, n)):
            begin = np.array([ends[number], *[0] * (way.rank - 1)], np.int32)
            size = np.array([way.rows[number], *[-1] * (way.rank - 1)], np.int32)
            where = [self._writer.shared_const(each, shard) for each in (begin, size)]
            blocks[number] = self._writer.op(
                "Slice", f"{name}/block_{number}", [tensor, *where], T=dtype, Index=np.int32
            )
        return blocks

    def _put_together(self, name: str, blocks: Sequence[str], dtype: str, shard: int | None) -> str:
        axis = self._writer.shared_const(np.array(0, np.int32), shard)
        own = self._writer.free_name(name)
        new = self._writer.node("ConcatV2", own, [*blocks, axis], T=dtype, Tidx=np.int32)
        new.attr["N"].i = len(blocks)
        return f"{own}:0"

    def _summed(self, name: str, parts: Sequence[str], dtype: str, is_large: bool) -> str:
        """Grappler joins a chain of AddN to one AddN, and leaves one of AddV2 alone."""
        if len(parts) == 1:
            return parts[0]
        if self._in_turn and is_large and "float" in dtype:
            return self._in_a_chain("AddV2", name, parts, {"T": dtype})
        new = self._writer.node("AddN", self._writer.free_name(name), list(parts), T=dtype)
        new.attr["N"].i = len(parts)
        return f"{new.name}:0"

    def _in_a_chain(
        self, op: str, name: str, parts: Sequence[str], types: Mapping[str, Any]
    ) -> str:
        result = parts[0]
        for part in parts[1:]:
            result = self._writer.op(op, name, [result, part], **types)
        return result


def shards_of_hosts(host_of_shard: Sequence[int]) -> dict[int, list[int]]:
    """{host: its shards}; empty unless there are several, and one of them has several shards."""
    shards: dict[int, list[int]] = defaultdict(list)
    for shard, host in enumerate(host_of_shard):
        shards[host].append(shard)
    return dict(shards) if 1 < len(shards) < len(host_of_shard) else {}
