"""Plain data parallelism of a step that is split along its batch: shard m on device m."""

from __future__ import annotations

import re

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.algorithms.placers.variable_units import variable_bytes, variable_units

SHARD = re.compile(r"/shard_(\d+)(?=/|$)")
"""What a name has if its op is a copy for a shard."""


def shard_of_op(problem: Problem) -> IntArray:
    """i4[N]: which shard an op works for; -1 for an op that is whole."""
    found = (SHARD.search(name) for name in problem.graph.op_names)
    return np.array([-1 if match is None else int(match[1]) for match in found], dtype=np.int32)


def data_parallel(problem: Problem) -> IntArray:
    """i4[N]: shard m's ops on working device m, variables spread over the devices by bytes.

    What sums a gradient lies where all that use the sum do, with the variable. What several devices
    read, such as the parts of an input, lies on the first of these: TensorFlow's executor sends
    what later shards read before it computes with its own part, but not the other way round.

    Args:
      problem: of a split step; its ops are in a topological order.
    """
    devices = working_devices(problem)
    shard = shard_of_op(problem)
    wanted = np.where(shard >= 0, devices[shard % len(devices)], -1).astype(np.int32)
    _spread_variables(problem, wanted, devices)
    graph = problem.graph
    source = graph.tensor_producer[graph.use_tensor]
    order = np.argsort(source, kind="stable")[::-1]
    users: dict[int, set[int]] = {}
    for use in order.tolist():  # an op's users have their devices before it, from the end on
        users.setdefault(int(source[use]), set()).add(int(graph.use_op[use]))
    for op in range(problem.num_ops - 1, -1, -1):
        if wanted[op] < 0 and (using := users.get(op)):
            places = {int(wanted[user]) for user in using}
            if len(places) == 1 or min(places) >= 0:  # -1: not known yet
                wanted[op] = min(places)
    for use in np.argsort(graph.use_op, kind="stable").tolist():
        if wanted[graph.use_op[use]] < 0:
            wanted[graph.use_op[use]] = wanted[source[use]]
    wanted[wanted < 0] = devices[0]
    return legal(problem, wanted)


def _spread_variables(problem: Problem, wanted: IntArray, devices: IntArray) -> None:
    """Gives variables and what updates them a device, the largest first, the least held next."""
    group = variable_units(problem, shard_of_op(problem))
    num_bytes = variable_bytes(problem, group)
    held = dict.fromkeys(devices.tolist(), 0.0)
    for unit in np.argsort(-num_bytes, kind="stable").tolist():
        if num_bytes[unit] <= 0:
            break
        least = min(held, key=held.__getitem__)
        held[least] += num_bytes[unit]
        wanted[group == unit] = least
