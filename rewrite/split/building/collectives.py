"""Combines the terms of all shards, and gives all shards a whole tensor: from one to the next.

Where shards lie on many devices, a weight that goes to each from its variable, and gradients that
all come there, wait for one channel while others are idle. Between hosts each would cross the
network once for every device. So a large whole tensor goes from host to host, and on each from
device to device, by Identities, which TensorFlow keeps where they read from another device. A large
sum goes round likewise: each device adds its own terms, each host its own sum, and it ends where
the variable is. Very large tensors go in blocks of rows: the next one has the first while it gets
the second. Which shards share a host or a device has to be said before the step is placed; wherever
these ops are placed then, they compute the same.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.by_key import by_key
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of
from graphs.op_types import VARIABLES
from graphs.protos import DType, NodeDef, Nodes
from rewrite.split.decide.decide import Decisions
from rewrite.split.effects import Variable, variable_of_handle
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Place

_COMBINE_OPS = {"max": "Maximum", "min": "Minimum", "prod": "Mul",
                "all": "LogicalAnd", "any": "LogicalOr"}  # fmt: skip
_NOT_SENT = frozenset({"resource", "variant", "string"})
"""Handles, and what has another size than it seems."""


@dataclasses.dataclass(frozen=True)
class Way:
    """How a large tensor goes round."""

    home: int  # the shard beside which it begins or ends
    rows: Sequence[int] = ()  # the rows of each block; () where it goes in one piece


class AcrossShards:
    """Adds what combines tensors of all shards, or hands a tensor on to them.

    Attributes:
      ring: where tensors go round.
    """

    def __init__(self, writer: NodeWriter, decisions: Decisions):
        self.ring = ring_of(decisions.place_of_shard)
        self._writer, self._turn = writer, 0
        # Where each device has one shard there is nothing to be freed by adding in turn.
        is_shared = any(len(each) > 1 for devices in self.ring.values() for each in devices)
        self._in_turn = decisions.sums_in_turn and (is_shared or not self.ring)

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
          is_large: whether one arrives later than a message that holds nothing.
          way: how it goes round; None where all terms are combined at once.
        """
        if combine != "sum":
            types: dict[str, DType] = {} if combine in ("all", "any") else {"T": dtype}
            return self._in_a_chain(_COMBINE_OPS[combine], name, parts, types)
        if way is None:
            return self._summed(name, parts, dtype, is_large)
        if not way.rows:
            return self._summed_round(name, parts, dtype, way.home)
        blocks = [
            self._in_blocks(f"{name}/rows/shard_{shard}", part, dtype, way, shard)
            for shard, part in enumerate(parts)
        ]
        summed = []
        for number, terms in enumerate(zip(*blocks, strict=True)):
            summed.append(self._summed_round(f"{name}/block_{number}", terms, dtype, way.home))
        return self._writer.concat(name, summed, 0, dtype)

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
            self._writer.concat(f"{name}/all/shard_{shard}", here, 0, dtype, shard)
            for shard, here in enumerate(zip(*blocks, strict=True))
        ]

    def summed_on_each_host(self, name: str, terms: Sequence[str], dtype: str) -> list[str]:
        """The name of a small sum for each shard: each host sends its own sum to the others.

        So few messages cross the network, and each device has few to wait for. One device of a
        host adds for it; which one, takes turns.
        """
        self._turn += 1
        leaders = [devices[self._turn % len(devices)][0] for devices in self.ring.values()]
        own = [
            self._summed(
                f"{name}/of_host/shard_{leader}",
                [terms[shard] for shards in devices for shard in shards], dtype, False
            )
            for leader, devices in zip(leaders, self.ring.values(), strict=True)
        ]  # fmt: skip
        on_shard = {}
        for leader, devices in zip(leaders, self.ring.values(), strict=True):
            whole = self._summed(f"{name}/shard_{leader}", own, dtype, False)
            on_shard.update({shard: whole for shards in devices for shard in shards})
        return [on_shard[shard] for shard in range(len(terms))]

    def _from(self, home: int) -> list[list[Sequence[int]]]:
        """The shards of each device of each host, in the order of the ring from one shard on."""
        hosts = list(self.ring.values())
        at = next(n for n, devices in enumerate(hosts) if any(home in each for each in devices))
        turn = next(n for n, shards in enumerate(hosts[at]) if home in shards)
        return [
            [*devices[turn % len(devices) :], *devices[: turn % len(devices)]]
            for devices in (*hosts[at:], *hosts[:at])
        ]

    def _handed_from_shard_to_shard(
        self, whole: str, name: str, dtype: str, home: int
    ) -> list[str]:
        """The name of a tensor for each shard; the shards of a device read the same."""
        on_shard, first = {}, whole
        for devices in self._from(home):
            here = first
            for shards in devices:
                here = self._writer.op("Identity", f"{name}/shard_{shards[0]}", [here], T=dtype)
                on_shard.update(dict.fromkeys(shards, here))
            first = on_shard[devices[0][0]]
        return [on_shard[shard] for shard in range(len(on_shard))]

    def _summed_round(self, name: str, terms: Sequence[str], dtype: str, home: int) -> str:
        """The sum, to which each device adds its terms; it ends at home."""
        here, *others = self._from(home)
        so_far: list[str] = []
        for devices in (*others, here):
            (first, *rest), inside = devices, list[str]()
            for shards in rest:
                own = f"{name}/shard_{shards[0]}"
                inside = [self._summed(own, [*(terms[s] for s in shards), *inside], dtype, True)]
            parts = [*(terms[s] for s in first), *inside, *so_far]
            own = name if devices is here else f"{name}/shard_{first[0]}"
            so_far = [self._summed(own, parts, dtype, True)]
        return so_far[0]

    def _in_blocks(
        self, name: str, tensor: str, dtype: str, way: Way, shard: int | None = None
    ) -> list[str]:
        """Blocks of rows: a SplitV's outputs, of which each is sent as soon as all are cut."""
        sizes = self._writer.shared_const(np.array(way.rows, np.int32), shard)
        axis = self._writer.shared_const(np.array(0, np.int32), shard)
        return self._writer.split(name, tensor, sizes, axis, len(way.rows), dtype)

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
        self, op: str, name: str, parts: Sequence[str], types: Mapping[str, DType]
    ) -> str:
        result = parts[0]
        for part in parts[1:]:
            result = self._writer.op(op, name, [result, part], **types)
        return result


# Beside which shard each variable is expected to lie, before it is placed.
#
# What is handed on from shard to shard begins where the variable lies, what is added ends there.
# So each variable that all shards read gets a home, in the order in which the step comes to need
# them: each time where the least lies, one host after the other. Data parallelism places it there.
# Wherever the search puts it then, the step computes the same.

_MOST_STEPS = 12
"""Ops between a variable and what all shards read of it, or between a gradient and its update."""
FIRST_VARIABLES = 4
"""So many variables are the first that all shards read, and their gradients the last to be added:
no other work hides what sending them takes."""


@dataclasses.dataclass(frozen=True)
class Home:
    """Where a tensor that goes round begins or ends."""

    shard: int  # beside which it lies
    is_first: bool = False  # whether it is of one of the FIRST_VARIABLES


class Homes:
    """Gives variables a home."""

    def __init__(self, flat: FlatGraph, ring: "Ring"):
        """Begins with nothing anywhere; `ring` has the shards of each device."""
        self._nodes: Nodes = flat.nodes
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

    def _key(self, node: NodeDef) -> Variable | str:
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
    """Where large tensors go round: over several hosts of several devices, or over many devices."""
    devices = by_key((place, shard) for shard, place in enumerate(place_of_shard))
    hosts = by_key((host, shards) for (host, _), shards in sorted(devices.items()))
    return hosts if 1 < len(hosts) < len(devices) or len(devices) > MOST_DIRECT else {}
