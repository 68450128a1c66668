"""A split step, read as one shard of it and what is whole: all shards do the same.

An op of a role stands for its copies, one in each shard; a whole op stands for itself. Roles have
the names of the unsplit step's ops, so that steps split otherwise can be compared by them.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.names import original_name
from graphs.op_graph import FloatArray, IntArray, LongArray, OpGraph
from graphs.problem import Problem
from tfplace.bounds.travel_bound import Sharing
from tfplace.grouping.copies import WHOLE, gathers_shards, shard_of_op
from tfplace.grouping.quotient import BoolArray

Role = tuple[str, str, bool]
"""Name in the unsplit step, op type, and whether there is a copy for each shard."""
_ADDITIONS = ("AddN", "AddV2")
_SUM = re.compile(r"^(.*/summed)(?=[_/]|$)")
"""How the ops begin that add one tensor's terms, in however many pieces."""


@dataclasses.dataclass(frozen=True)
class StepRoles:
    """R ops of a step: those of its least shard, and the whole ones.

    Attributes:
      num_shards: M.
      problem: these ops alone, with what they use of each other.
      roles: [R].
      is_copy: bool[R].
      gathers: bool[R] ops that use tensors of several shards: more shards, more to do.
      least, most: f8[R, D] seconds of the quickest and of the slowest copy; inf where an op may
        not lie.
      sums: {what is summed: f8[D] seconds of all ops that add its terms}; they are other ops in
        other numbers of shards.
      is_sum: bool[R] whether an op is one of these.
      sharing: what the tensors and ops of `problem` stand for.
      step: the whole step.
    """

    num_shards: int
    problem: Problem
    roles: Sequence[Role]
    is_copy: BoolArray
    gathers: BoolArray
    least: FloatArray
    most: FloatArray
    sums: Mapping[str, FloatArray]
    is_sum: BoolArray
    sharing: Sharing
    step: Problem

    def of_roles(self, wanted: Sequence[Role]) -> IntArray:
        """i4[W]: the op of each role; -1 for a role that is not in this step."""
        number = {role: index for index, role in enumerate(self.roles)}
        return np.array([number.get(role, -1) for role in wanted], dtype=np.int32)


def step_roles(problem: Problem) -> StepRoles:
    """Reads a step; an op whose copies are not in every shard is left out."""
    graph, shard = problem.graph, shard_of_op(problem)
    num_shards = max(int(shard.max(initial=WHOLE)) + 1, 1)
    names = zip(graph.op_names, graph.op_types, (shard != WHOLE).tolist(), strict=True)
    roles: list[Role] = [
        (original_name(name) if copy else name, op_type, copy) for name, op_type, copy in names
    ]
    number: dict[Role, int] = {}
    role_of_op = np.array([number.setdefault(role, len(number)) for role in roles], dtype=np.int64)
    is_copy = shard != WHOLE
    complete = np.bincount(role_of_op)[role_of_op] == np.where(is_copy, num_shards, 1)
    seconds = np.where(problem.allowed(), problem.op_seconds, np.inf)
    here = complete & (~is_copy | (shard == _least_shard(seconds, shard)))
    kept = np.flatnonzero(here).astype(np.int32)
    most = np.full((len(number), problem.num_devices), -np.inf)
    np.maximum.at(most, role_of_op, seconds)
    quickest = np.full((len(number), problem.num_devices), np.inf)
    np.minimum.at(quickest, role_of_op, seconds)
    part, tensors = _part(problem, kept, seconds)
    names_of_sums = list(map(_what_is_summed, graph.op_names, graph.op_types))
    sums: dict[str, FloatArray] = {}
    for op, name in enumerate(names_of_sums):
        if name:
            sums[name] = sums.get(name, 0.0) + seconds[op]
    return StepRoles(
        num_shards=num_shards,
        problem=part,
        roles=[roles[op] for op in kept],
        is_copy=is_copy[kept],
        gathers=gathers_shards(graph, shard)[kept],
        least=quickest[role_of_op[kept]],
        most=most[role_of_op[kept]],
        sums=sums,
        is_sum=np.array([bool(names_of_sums[op]) for op in kept], dtype=bool),
        sharing=_sharing(graph, shard, role_of_op, tensors, kept),
        step=problem,
    )


def _what_is_summed(name: str, op_type: str) -> str:
    """What an op adds terms of; "" if it adds none of several shards."""
    found = _SUM.match(original_name(name)) if op_type in _ADDITIONS else None
    return found[1] if found else ""


def _least_shard(seconds: FloatArray, shard: IntArray) -> int:
    """The shard with the least work, of equals the last: sizes differ where M divides no batch."""
    least = seconds.min(axis=1)
    counts = (shard != WHOLE) & np.isfinite(least)
    work = np.bincount(shard[counts], least[counts])
    return int(len(work) - 1 - work[::-1].argmin()) if len(work) else WHOLE


def _sharing(
    graph: OpGraph, shard: IntArray, role: LongArray, tensors: IntArray, kept: IntArray
) -> Sharing:
    """A whole op's tensor fans out where it goes to all shards alike, or to none.

    Tensors that go to one op each count as used once where those of all shards go to the same op.
    """
    num_shards = int(shard.max(initial=WHOLE)) + 1
    maker, user = graph.tensor_producer[graph.use_tensor], graph.use_op
    num_users = np.bincount(graph.use_tensor, minlength=graph.num_tensors)
    to_copy, of_copy = shard[user] != WHOLE, shard[maker] != WHOLE
    partly = _incomplete(graph.use_tensor, role[user], to_copy, num_shards)
    is_shared = np.ones(graph.num_tensors, dtype=bool)
    is_shared[graph.use_tensor[partly]] = False
    is_shared &= (shard[graph.tensor_producer] == WHOLE) & (num_users > 1)
    is_single = num_users == 1
    partly = _incomplete(user, role[maker], of_copy & is_single[graph.use_tensor], num_shards)
    is_single[graph.use_tensor[partly]] = False
    return Sharing(is_shared[tensors], is_single[tensors], shard[kept] == WHOLE)


def _incomplete(one: IntArray, role: LongArray, counts: BoolArray, num_shards: int) -> BoolArray:
    """bool[U]: uses that count, of which there are not so many between the same `one` and role."""
    pairs = np.stack([one.astype(np.int64), role], axis=1)[counts]
    _, number, times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    found = np.zeros(len(counts), dtype=bool)
    found[counts] = times[number.reshape(-1)] != num_shards
    return found


def _part(problem: Problem, kept: IntArray, seconds: FloatArray) -> tuple[Problem, IntArray]:
    """A problem of some ops, where they may lie as before; and which tensors are left of it."""
    graph = problem.graph
    new_op = np.full(graph.num_ops, -1, dtype=np.int32)
    new_op[kept] = np.arange(len(kept), dtype=np.int32)
    tensors = np.flatnonzero(new_op[graph.tensor_producer] >= 0).astype(np.int32)
    new_tensor = np.full(graph.num_tensors, -1, dtype=np.int32)
    new_tensor[tensors] = np.arange(len(tensors), dtype=np.int32)
    uses = (new_tensor[graph.use_tensor] >= 0) & (new_op[graph.use_op] >= 0)
    part = OpGraph(
        op_names=[graph.op_names[op] for op in kept],
        op_types=[graph.op_types[op] for op in kept],
        tensor_producer=new_op[graph.tensor_producer[tensors]],
        tensor_output=graph.tensor_output[tensors],
        tensor_bytes=graph.tensor_bytes[tensors],
        tensor_alloc_bytes=graph.tensor_alloc_bytes[tensors],
        tensor_shares=np.full(len(tensors), -1, dtype=np.int32),  # a bound asks for times alone
        tensor_takes_over=graph.tensor_takes_over[tensors],
        tensor_shape=graph.tensor_shape[tensors],
        use_tensor=new_tensor[graph.use_tensor[uses]],
        use_op=new_op[graph.use_op[uses]],
        op_persistent_bytes=graph.op_persistent_bytes[kept],
        op_temp_bytes=graph.op_temp_bytes[kept],
        colocation_group=graph.colocation_group[kept],
    )
    free = np.full(len(kept), -1, dtype=np.int32)
    return dataclasses.replace(
        problem, graph=part, op_seconds=seconds[kept], pinned_device=free, start_rank=None
    ), tensors
