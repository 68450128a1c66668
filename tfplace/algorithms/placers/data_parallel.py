"""What a search of a split step begins with: data parallelism, and pipelines.

Data parallelism: a device computes whole shards.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from graphs.by_key import by_key
from graphs.graph_edges import row_starts
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem
from rewrite.split.decision import MOST_BYTES
from tfplace.algorithms.placers.legal import completed, distinct, legal, working_devices
from tfplace.algorithms.placers.variable_units import (
    variable_bytes,
    variable_units,
    with_their_layers,
)
from tfplace.grouping.copies import WHOLE, gathers_shards, is_relay, shard_of_op, tied_copies
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import BoolArray, fastest_seconds


def data_parallel(
    problem: Problem,
    device_of_shard: Sequence[int] | None = None,
    in_order_of_use: bool = False,
    with_layers: bool = False,
) -> IntArray:
    """i4[N]: shard m's ops on working device m, variables spread over the devices by bytes.

    What sums a gradient lies where all that use the sum do, with the variable; a variable that is
    handed on from shard to shard, where that begins. What several devices read, such as the parts
    of an input, lies on the first of these: TensorFlow's executor sends what later shards read
    before it computes with its own part, but not the other way round.

    Args:
      problem: of a split step; its ops are in a topological order.
      device_of_shard: where each shard lies instead.
      in_order_of_use: whether variables are spread as the step comes to need them, so that what is
        needed first comes from all devices; else the largest first, which balances better.
      with_layers: whether whole ops that work on the batch lie with the weights that they read.
    """
    devices = working_devices(problem)
    shard = shard_of_op(problem)
    if device_of_shard is None:
        device_of_shard = _shards_in_turn(problem, shard)
    home = np.append(np.array(device_of_shard, dtype=np.int32), -1)  # of shard -1: not known yet
    wanted = home[shard]
    unit = variable_units(problem, shard)
    if with_layers:
        unit = with_their_layers(problem, shard, unit)
    _spread_variables(problem, shard, unit, wanted, devices, in_order_of_use)
    graph = problem.graph
    source = graph.tensor_producer[graph.use_tensor]  # ascending, as tensors and uses are
    first_use = row_starts(source, problem.num_ops)
    for op in np.flatnonzero(wanted < 0)[::-1].tolist():  # its users have their devices before it
        users = graph.use_op[first_use[op] : first_use[op + 1]]
        wanted[op] = wanted[users].min() if len(users) else -1  # -1: one is not known yet
    return completed(problem, wanted)


def data_parallel_starts(problem: Problem, seed: int = 0) -> IntArray:
    """i4[B, N]: data parallelism in all its forms, the plain one first.

    The others have devices in a ring (in_a_ring), and come with batch statistics on the hosts'
    CPUs, too (with_barriers_on_cpus).

    Args:
      problem: of a split step.
    """
    ring = in_a_ring(problem)
    in_turn, by_speed = _shards_in_turn(problem, devices=ring), shards_by_speed(problem, ring)
    ways = [in_turn] if by_speed == in_turn else [in_turn, by_speed]
    forms = [data_parallel(problem, shards, order) for shards in ways for order in (False, True)]
    forms += [data_parallel(problem, shards, True, with_layers=True) for shards in ways]
    plain = [] if in_turn == _shards_in_turn(problem) else [data_parallel(problem)]
    return distinct([*plain, *forms, *(with_barriers_on_cpus(problem, form) for form in forms)])


def shards_by_speed(problem: Problem, devices: Sequence[int] | None = None) -> list[int]:
    """Where each shard lies if faster devices get more of them.

    Each goes where it ends first, behind those that lie there already.

    Args:
      problem: of a split step.
      devices: the working devices, of which the first is taken where several are equal.
    """
    devices = working_devices(problem).tolist() if devices is None else devices
    shard = shard_of_op(problem)
    seconds = np.where(np.isfinite(problem.op_seconds), problem.op_seconds, 0.0)
    of_shard = np.zeros((int(shard.max(initial=0)) + 1, problem.num_devices))
    np.add.at(of_shard, shard[shard >= 0], seconds[shard >= 0])
    busy: FloatArray = np.zeros(problem.num_devices)
    dealt = []
    for row in of_shard:
        device = min(devices, key=lambda d: busy[d] + row[d])
        busy[device] += row[device]
        dealt.append(device)
    return dealt


def _shards_in_turn(
    problem: Problem, shard: IntArray | None = None, devices: Sequence[int] | None = None
) -> list[int]:
    """Where each shard lies if they are dealt to the working devices one by one."""
    shard = shard_of_op(problem) if shard is None else shard
    devices = working_devices(problem).tolist() if devices is None else devices
    return [devices[number % len(devices)] for number in range(int(shard.max(initial=0)) + 1)]


def _spread_variables(
    problem: Problem,
    shard: IntArray,
    unit: LongArray,
    wanted: IntArray,
    devices: IntArray,
    in_order_of_use: bool,
) -> None:
    """Gives variables and what updates them a device: one after the other the least held one.

    Of equals the last device, so that the largest does not lie beside the input's parts, which the
    first one sends before it computes. What is handed on from shard to shard lies where it begins.
    """
    num_bytes = variable_bytes(problem, unit)
    order = np.argsort(-num_bytes, kind="stable")
    if in_order_of_use:
        order = np.argsort(_first_uses(problem, shard, unit), kind="stable")
    ways = list(ways_to_relays(problem, (num_bytes[unit] > 0).tolist()))
    homes = {int(unit[way[-1]]): int(wanted[relay]) for relay, way in reversed(ways)}
    own = np.flatnonzero((problem.graph.op_persistent_bytes > 0) & (shard >= 0))
    homes |= dict(zip(unit[own].tolist(), wanted[own].tolist(), strict=True))  # pieces of weights
    held = dict.fromkeys(devices[::-1].tolist(), 0.0)
    for number in order[num_bytes[order] > 0].tolist():
        least = homes.get(number, min(held, key=held.__getitem__))
        held[least] += num_bytes[number]
        wanted[unit == number] = least
    for _, way in ways:  # such as a cast
        wanted[way] = np.where(wanted[way] < 0, wanted[way[-1]], wanted[way])


def _first_uses(problem: Problem, shard: IntArray, unit_of_op: LongArray) -> LongArray:
    """i8[V]: the first copy that reads something of each unit's whole ops; N for none."""
    graph = problem.graph
    source = graph.tensor_producer[graph.use_tensor]
    is_read = (shard[source] < 0) & (shard[graph.use_op] >= 0)
    first = np.full(int(unit_of_op.max()) + 1, problem.num_ops, dtype=np.int64)
    np.minimum.at(first, unit_of_op[source[is_read]], graph.use_op[is_read])
    return first


def with_barriers_on_cpus(problem: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: the placement, with the small ops between all shards on their hosts' CPUs.

    Batch statistics are such: each shard waits for them, and no shard can go on before all are
    there. The same array where there are none, or no CPU that has nothing else to do.

    Args:
      problem: of a split step; its ops are in a topological order.
      device_of_op: i4[N] data parallelism.
    """
    cpu_of_device = _host_cpus(problem)
    if (cpu_of_device < 0).all():
        return device_of_op
    there = cpu_of_device[device_of_op]
    may = (there >= 0) & problem.allowed()[np.arange(problem.num_ops), there]
    return np.where(may & _between_shards(problem), there, device_of_op).astype(np.int32)


def _host_cpus(problem: Problem) -> IntArray:
    """i4[D]: the first CPU of each device's task that computes no shard; -1 where there is none."""
    tasks = problem.device_tasks
    works = set(working_devices(problem).tolist())
    cpu_of_task: dict[str, int] = {}
    for device, (task, kind) in enumerate(zip(tasks, problem.device_types, strict=True)):
        if kind == "CPU" and device not in works:
            cpu_of_task.setdefault(task, device)
    return np.array([cpu_of_task.get(task, -1) for task in tasks], dtype=np.int32)


def _between_shards(problem: Problem) -> BoolArray:
    """bool[N]: ops that several shards' tensors lead to, whose small results lead to a shard."""
    graph, shard = problem.graph, shard_of_op(problem)
    source = graph.tensor_producer[graph.use_tensor]
    gathers = gathers_shards(graph, shard)
    after, before = gathers.copy(), np.zeros(problem.num_ops, dtype=bool)
    is_own = (shard != WHOLE) & ~gathers
    by_user = np.argsort(graph.use_op, kind="stable")
    for maker, user in zip(source[by_user].tolist(), graph.use_op[by_user].tolist(), strict=True):
        after[user] |= after[maker] and not is_own[user]
    for use in np.argsort(source, kind="stable")[::-1].tolist():
        before[source[use]] |= is_own[graph.use_op[use]] or before[graph.use_op[use]]
    largest = np.zeros(problem.num_ops, dtype=np.int64)
    np.maximum.at(largest, graph.tensor_producer, graph.tensor_bytes)
    np.maximum.at(largest, graph.use_op, graph.tensor_bytes[graph.use_tensor])
    is_free = (graph.colocation_group < 0) & (graph.op_persistent_bytes == 0)
    return np.asarray(after & before & is_free & ~is_own & (largest <= MOST_BYTES))


def ways_to_relays(problem: Problem, has_bytes: Sequence[bool]) -> Iterator[tuple[int, list[int]]]:
    """The first relay of each value that goes from shard to shard, and the way to it.

    Args:
      problem: of a split step.
      has_bytes: [N] whether an op is of a variable's unit.

    Yields:
      The relay, and the ops that it reads from, back to one of the variable's unit.
    """
    graph = problem.graph
    hands_on = is_relay(problem)
    if not hands_on.any():
        return
    source = graph.tensor_producer[graph.use_tensor]
    largest = np.argsort(graph.tensor_bytes[graph.use_tensor], kind="stable")
    read = dict(zip(graph.use_op[largest].tolist(), source[largest].tolist(), strict=True))
    for relay in np.flatnonzero(hands_on).tolist():
        way = [read[relay]]
        if hands_on[way[0]]:
            continue
        while not has_bytes[way[-1]] and way[-1] in read:
            way.append(read[way[-1]])
        if has_bytes[way[-1]]:
            yield relay, way


# Devices in a ring: each has a quick way to the next.
#
# What all shards need goes from shard to shard on one host (decision 062), so shards one after
# another should lie on devices with a quick link between. GPUs of a host with an uneven mesh have
# several kinds of links: in a DGX-1 with V100, of 48, 24 and 12 GB/s. A ring in the order of their
# numbers has two of the slowest; there is one that has none but the fastest.

MOST_DEVICES = 8
"""Of a host; all their orders are tried. More of them hang on one switch, and are alike."""


def in_a_ring(problem: Problem) -> list[int]:
    """All working devices; those of a host in the order whose links take least time for a byte.

    Each host keeps its places, and the order of its devices where no other is quicker.
    """
    devices = working_devices(problem).tolist()
    host_of = problem.device_tasks
    on_host = by_key((host_of[device], device) for device in devices)
    with np.errstate(divide="ignore"):
        seconds = 1.0 / problem.link_bytes_per_second
    rings = {host: iter(_ring(each, seconds)) for host, each in on_host.items()}
    return [next(rings[host_of[device]]) for device in devices]


def _ring(devices: list[int], seconds: FloatArray) -> list[int]:
    """The ring that is shortest, of equals the first; it begins with the first device."""
    if not 3 < len(devices) <= MOST_DEVICES:
        return devices
    orders = np.array(list(itertools.permutations(devices[1:])), dtype=np.int64)
    rings = np.hstack([np.full((len(orders), 1), devices[0]), orders])
    length = seconds[rings, np.roll(rings, -1, axis=1)].sum(axis=1)
    return rings[int((length <= length.min() * (1.0 + 1e-9)).argmax())].tolist()


# Pipelines of a split step: layers on devices one after another, each with all of its shards.


def pipeline(problem: Problem, seed: int = 0, width: int = 1) -> IntArray:
    """i4[N]: the layers in the order of their forward ops, cut into stages.

    A layer has a variable, what reads it, its gradient and its update, for all shards. Stages take
    as long as each other on their own devices: faster ones get more. A stage has a quick link to
    the next (data_parallel.py).

    Args:
      problem: of a split step.
      width: how many devices a stage has, which share its shards; the first has its whole ops.
    """
    # All copies of an op lie in the layer of the first of them.
    tie = tied_copies(problem).group_of_op
    layer = layer_groups(problem, seed).group_of_op[np.unique(tie, return_index=True)[1][tie]]
    seconds = fastest_seconds(problem, problem.allowed())
    num_layers = int(layer.max()) + 1
    first = np.full(num_layers, problem.num_ops, dtype=np.int64)
    computes = (seconds > 0.0) & (shard_of_op(problem) >= 0)
    np.minimum.at(first, layer[computes], np.flatnonzero(computes))
    work = np.bincount(layer, weights=seconds, minlength=num_layers)
    order = np.argsort(first, kind="stable")
    middle = np.cumsum(work[order]) - work[order] / 2.0
    devices = np.array(in_a_ring(problem), dtype=np.int32)
    anywhere = np.isfinite(problem.op_seconds[:, devices]).all(axis=1)
    speeds = 1.0 / np.maximum(problem.op_seconds[anywhere][:, devices].sum(axis=0), 1e-12)
    ends = np.cumsum(speeds / speeds.sum())[width - 1 :: width] * work.sum()
    stage = np.empty(num_layers, dtype=np.int64)
    stage[order] = np.minimum(np.searchsorted(ends, middle), len(devices) // width - 1)
    place = stage[layer] * width + np.maximum(shard_of_op(problem), 0) % width
    return legal(problem, devices[place].astype(np.int32))


def pipelines(problem: Problem, seed: int = 0) -> IntArray:
    """i4[B, N]: a pipeline over devices, and one over groups of as many devices as shards."""
    num_devices, num_shards = len(working_devices(problem)), int(shard_of_op(problem).max()) + 1
    is_dealt = 1 < num_shards < num_devices and num_devices % num_shards == 0
    widths = (1, num_shards) if is_dealt else (1,)
    return np.stack([pipeline(problem, seed, width) for width in widths])
