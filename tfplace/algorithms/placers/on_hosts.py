"""Data parallelism over several hosts: where sums are made, where what is handed on begins."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.names import HOST, RELAY
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.grouping.copies import host_of_op


def place_sums_on_hosts(problem: Problem, shard_of_op: IntArray, wanted: IntArray) -> None:
    """Gives what sums a tensor for the shards of one host a device that has some.

    That of the variable where it has; else the one that is on its host what the variable's is on
    its own, so that these, too, are spread as the variables are. Blocks of rows lie on one device
    after another.

    Args:
      problem: of a split step; its ops are in a topological order.
      shard_of_op: i4[N] which shard an op works for; -1 for an op that is whole.
      wanted: i4[N] devices of shards and variables, -1 elsewhere; written to.
    """
    host = host_of_op(problem)
    if host.max(initial=-1) < 0:
        return
    graph = problem.graph
    devices = devices_of_hosts(problem, shard_of_op, wanted, host)
    users: dict[int, list[int]] = defaultdict(list)
    largest = np.argsort(-graph.tensor_bytes[graph.use_tensor], kind="stable")
    source = graph.tensor_producer[graph.use_tensor]
    for maker, user in zip(source[largest].tolist(), graph.use_op[largest].tolist(), strict=True):
        users[maker].append(user)
    for op in np.flatnonzero(host >= 0)[::-1].tolist():  # the last of a chain of sums first
        match, mine = HOST.search(graph.op_names[op]), devices[int(host[op])]
        assert match is not None
        if match[1]:
            wanted[op] = mine[int(match[1]) % len(mine)]
        else:
            wanted[op] = _on_host(_home(users, op, wanted), mine, devices)


def ways_to_relays(problem: Problem, has_bytes: Sequence[bool]) -> Iterator[tuple[int, list[int]]]:
    """What is handed on from shard to shard: the first op that does, and the way there.

    Args:
      problem: of a split step.
      has_bytes: [N] whether an op is of a variable's unit.

    Yields:
      The op that hands on first, and the ops before it, back to the variable's.
    """
    graph = problem.graph
    is_relay = [RELAY.search(name) is not None for name in graph.op_names]
    if not any(is_relay):
        return
    source = graph.tensor_producer[graph.use_tensor]
    largest = np.argsort(graph.tensor_bytes[graph.use_tensor], kind="stable")
    read = dict(zip(graph.use_op[largest].tolist(), source[largest].tolist(), strict=True))
    for relay in np.flatnonzero(is_relay).tolist():
        way = [read[relay]]
        if is_relay[way[0]]:
            continue
        while not has_bytes[way[-1]] and way[-1] in read:
            way.append(read[way[-1]])
        if has_bytes[way[-1]]:
            yield relay, way


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
    rows = devices_of_hosts(problem, shard_of_op, wanted, host).values()
    host_of_device = {device: i for i, row in enumerate(rows) for device in row}
    if not host_of_device:
        return list(devices)
    of_host: dict[int, list[int]] = defaultdict(list)
    for device in devices:
        of_host[host_of_device.get(device, -1)].append(device)
    begun = [[*row[i % len(row) :], *row[: i % len(row)]] for i, row in enumerate(of_host.values())]
    turns = itertools.zip_longest(*begun)
    return [device for turn in turns for device in turn if device is not None]


def devices_of_hosts(
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


def _home(users: Mapping[int, Sequence[int]], op: int, wanted: IntArray) -> int:
    """The device at the end of the way along the largest tensors from an op; -1 for none."""
    while wanted[op] < 0 and users.get(op):
        op = users[op][0]
    return int(wanted[op])


def _on_host(home: int, mine: Sequence[int], devices_of_host: Mapping[int, Sequence[int]]) -> int:
    """The device of a host that stands for one of any host."""
    if home in mine or not mine:
        return home
    for theirs in devices_of_host.values():
        if home in theirs:
            return mine[theirs.index(home) % len(mine)]
    return mine[0]
