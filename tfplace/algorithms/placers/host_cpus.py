"""What all shards wait for, on the CPUs: a small sum there waits for no long op that is running."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from rewrite.split.repeat import MOST_BYTES
from tfplace.algorithms.placers.legal import working_devices
from tfplace.grouping.copies import WHOLE, gathers_shards, shard_of_op
from tfplace.grouping.quotient import BoolArray


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
