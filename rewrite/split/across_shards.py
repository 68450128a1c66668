"""Combines the terms of all shards, and gives all shards a whole tensor: between hosts once.

Where shards lie on several hosts, a gradient of each shard would cross the network to its variable,
and a weight would cross it for each device. So the terms of a large sum are added on each host
first, and a large whole tensor is handed on there by an Identity, which TensorFlow keeps where it
reads from another device than its readers lie on. Which shards share a host has to be said before
the step is placed; wherever these ops are placed then, they compute the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rewrite.split.decide import Decisions
from rewrite.split.node_writer import NodeWriter

_COMBINE_OPS = {"max": "Maximum", "min": "Minimum", "prod": "Mul",
                "all": "LogicalAnd", "any": "LogicalOr"}  # fmt: skip
_NOT_SENT = frozenset({"resource", "variant", "string"})
"""Handles, and what has another size than it seems."""


class AcrossShards:
    """Adds what combines tensors of all shards, or hands a tensor on to them."""

    def __init__(self, writer: NodeWriter, decisions: Decisions):
        self._writer = writer
        self._in_turn = decisions.sums_in_turn
        self._hosts = shards_of_hosts(decisions.host_of_shard)

    def combined(
        self, combine: str, name: str, parts: Sequence[str], dtype: str, is_large: bool
    ) -> str:
        """The value of a partial tensor.

        Args:
          combine: as Partial has it.
          name: of the op that makes it, if that is free.
          parts: its terms, one of each shard.
          dtype: theirs.
          is_large: whether one arrives later than a message that holds nothing.
        """
        if combine != "sum":
            types: dict[str, Any] = {} if combine in ("all", "any") else {"T": dtype}
            return self._in_a_chain(_COMBINE_OPS[combine], name, parts, types)
        if is_large and self._hosts:
            parts = [
                self._summed(f"{name}/host_{host}", [parts[s] for s in shards], dtype, is_large)
                for host, shards in self._hosts.items()
            ]
        return self._summed(name, parts, dtype, is_large)

    def handed_on(self, whole: str, name: str, dtype: str, num_shards: int) -> list[str]:
        """The name of a large whole tensor for each shard."""
        names = [whole] * num_shards
        for host, shards in self._hosts.items():
            if len(shards) > 1 and dtype not in _NOT_SENT:
                here = self._writer.op("Identity", f"{name}/host_{host}", [whole], T=dtype)
                names = [here if s in shards else each for s, each in enumerate(names)]
        return names

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
