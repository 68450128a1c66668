"""The tensors of a split step that may cross between hosts, in families of one for each shard."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tfplace.bounds.step_roles import StepRoles
from tfplace.grouping.copies import WHOLE
from tfplace.grouping.quotient import BoolArray


@dataclasses.dataclass(frozen=True)
class Family:
    """A whole tensor, or M tensors, one of each shard, which only its own copies use.

    Attributes:
      maker: the role that makes them: a copy each, or a whole op all of them.
      users: the roles that use them.
      num_bytes: of all of them together, at least.
      is_cut: whether a whole op makes one for each shard.
    """

    maker: int
    users: tuple[int, ...]
    num_bytes: int
    is_cut: bool


def families_of(roles: StepRoles, least_bytes: float) -> list[Family]:
    """Families of at least so many bytes together; roles that are left out use nothing."""
    graph, shard = roles.step.graph, roles.shard
    users_of = _users(roles, graph.tensor_bytes * roles.num_shards >= least_bytes)
    found: dict[tuple[int, int, tuple[int, ...], bool], list[int]] = defaultdict(list)
    for tensor, users in users_of:
        op = int(graph.tensor_producer[tensor])
        maker = int(roles.role_of_op[op])
        of_shard = {int(shard[user]) for user in users}
        is_cut = shard[op] == WHOLE and len(of_shard) == 1 and WHOLE not in of_shard
        if shard[op] != WHOLE:
            users = [user for user in users if shard[user] == shard[op]]
        using = tuple(sorted({int(roles.role_of_op[user]) for user in users}))
        if maker < 0 or not using:
            continue
        # The parts that one op cuts differ by their output; all else by what it is.
        output = -1 if is_cut else int(graph.tensor_output[tensor])
        found[maker, output, using, is_cut].append(tensor)
    families = []
    for (maker, _, using, is_cut), tensors in found.items():
        is_of_all = is_cut or roles.is_copy[maker]
        if len(tensors) == (roles.num_shards if is_of_all else 1):
            num_bytes = int(graph.tensor_bytes[tensors].min()) * len(tensors)
            if num_bytes >= least_bytes:
                families.append(Family(maker, using, num_bytes, is_cut))
    return families


def _users(roles: StepRoles, counts: BoolArray) -> Iterator[tuple[int, list[int]]]:
    """Each tensor that counts, with the ops that use it and have a role."""
    graph = roles.step.graph
    fits = counts[graph.use_tensor] & (roles.role_of_op[graph.use_op] >= 0)
    tensors, users = graph.use_tensor[fits], graph.use_op[fits].tolist()
    first = np.flatnonzero(np.diff(tensors, prepend=-1)).tolist()
    for start, end in itertools.pairwise([*first, len(users)]):
        yield int(tensors[start]), users[start:end]
