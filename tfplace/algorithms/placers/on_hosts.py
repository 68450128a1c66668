"""Data parallelism over several hosts: where sums are made on each host, and weights handed on."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.grouping.copies import host_of_op

_GATHERS = frozenset({"Gather", "GatherV2"})


def place_on_hosts(problem: Problem, shard_of_op: IntArray, wanted: IntArray) -> None:
    """Gives what sums or hands on a tensor for the shards of one host a device that has some.

    That of the variable where it has; else the one that is on its host what the variable's is on
    its own, so that these, too, are spread as the variables are. What lies between a variable and
    what hands it on, such as a cast, goes to the variable.

    Args:
      problem: of a split step; its ops are in a topological order.
      shard_of_op: i4[N] which shard an op works for; -1 for an op that is whole.
      wanted: i4[N] devices of shards and variables, -1 elsewhere; written to.
    """
    host = host_of_op(problem)
    if host.max(initial=-1) < 0:
        return
    graph = problem.graph
    devices = _devices_of_hosts(problem, shard_of_op, wanted, host)
    reads: dict[int, list[int]] = defaultdict(list)
    users: dict[int, list[int]] = defaultdict(list)
    largest = np.argsort(-graph.tensor_bytes[graph.use_tensor], kind="stable")
    uses = np.stack([graph.use_tensor, graph.use_op], axis=1)[largest]  # a weight, then its slice
    for tensor, user in uses.tolist():
        source = int(graph.tensor_producer[tensor])
        reads[user].append(source)
        users[source].append(user)
    is_given = wanted >= 0
    for op in np.flatnonzero(host >= 0)[::-1].tolist():  # the last of a chain of sums first
        is_sum = any(shard_of_op[source] >= 0 or host[source] >= 0 for source in reads[op])
        way = _way(users if is_sum else reads, op, wanted)
        home = int(wanted[way[-1]])
        wanted[op] = _on_host(home, devices[int(host[op])], devices)
        for other in way[:-1]:
            if not is_sum and not is_given[other]:
                wanted[other] = home


def gather_on_hosts(problem: Problem, shard_of_op: IntArray, wanted: IntArray) -> None:
    """Has shards' rows gathered where their host hands on the table, if that holds more than they.

    Each shard's device is sent its rows then, and need not wait for the whole table.

    Args:
      problem, shard_of_op, wanted: as above, when what hands on has its device.
    """
    graph = problem.graph
    source, size = graph.tensor_producer[graph.use_tensor], graph.tensor_bytes
    sent = np.zeros(problem.num_ops, dtype=np.int64)
    np.add.at(sent, graph.tensor_producer, size)
    is_gather = np.array([kind in _GATHERS for kind in graph.op_types], dtype=bool)
    user = graph.use_op
    moves = (host_of_op(problem)[source] >= 0) & is_gather[user] & (shard_of_op[user] >= 0)
    moves &= size[graph.use_tensor] > sent[user]
    wanted[user[moves]] = wanted[source[moves]]


def hosts_in_turn(
    problem: Problem, shard_of_op: IntArray, wanted: IntArray, devices: Sequence[int]
) -> list[int]:
    """The devices, one of each host after another; as they are where there are no hosts.

    What is handed on from one host after another is on its way through all network cards at once.
    A host that sends all of its own first keeps the others' ways in, in the order of the transfers.
    So do devices in their host, which hand on what comes from the like device of another one: each
    host's turn begins with another of its devices.

    Args:
      problem, shard_of_op, wanted: as above; shards' devices are known.
      devices: to be ordered.
    """
    host = host_of_op(problem)
    rows = _devices_of_hosts(problem, shard_of_op, wanted, host).values()
    host_of_device = {device: i for i, row in enumerate(rows) for device in row}
    if not host_of_device:
        return list(devices)
    of_host: dict[int, list[int]] = defaultdict(list)
    for device in devices:
        of_host[host_of_device.get(device, -1)].append(device)
    begun = [[*row[i % len(row) :], *row[: i % len(row)]] for i, row in enumerate(of_host.values())]
    turns = itertools.zip_longest(*begun)
    return [device for turn in turns for device in turn if device is not None]


def _devices_of_hosts(
    problem: Problem, shard_of_op: IntArray, wanted: IntArray, host: IntArray
) -> Mapping[int, Sequence[int]]:
    """{host: the devices on which its shards lie}, ascending."""
    graph = problem.graph
    source, user = graph.tensor_producer[graph.use_tensor], graph.use_op
    found: dict[int, set[int]] = {each: set() for each in np.unique(host[host >= 0]).tolist()}
    for here, there in ((source, user), (user, source)):
        uses = (host[here] >= 0) & (shard_of_op[there] >= 0)
        for op, device in zip(host[here][uses].tolist(), wanted[there][uses].tolist(), strict=True):
            found[op].add(device)
    return {number: sorted(devices) for number, devices in found.items()}


def _way(neighbours: Mapping[int, Sequence[int]], op: int, wanted: IntArray) -> list[int]:
    """Along the largest tensors from an op to one that has its device; never empty."""
    way = [op]
    while len(way) == 1 or wanted[way[-1]] < 0:
        further = neighbours.get(way[-1])
        if not further:
            break
        way.append(further[0])
    return way[1:] or way


def _on_host(home: int, mine: Sequence[int], devices_of_host: Mapping[int, Sequence[int]]) -> int:
    """The device of a host that stands for one of any host."""
    if home in mine or not mine:
        return home
    for theirs in devices_of_host.values():
        if home in theirs:
            return mine[theirs.index(home) % len(mine)]
    return mine[0]
