"""Legal placements: kernels, pins and colocation kept, whatever was wanted."""

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.grouping.quotient import BoolArray, fastest_seconds


def working_devices(problem: Problem) -> IntArray:
    """Devices to spread work over: all that are not CPUs, or all if there are only CPUs.

    A device that no op can lie on, as --max_devices leaves some, is none of them.
    """
    usable = np.flatnonzero(np.isfinite(problem.op_seconds).any(axis=0)).tolist()
    accelerators = [d for d in usable if problem.device_types[d] != "CPU"]
    return np.array(accelerators or usable or range(problem.num_devices), dtype=np.int32)


def fallback_order(problem: Problem) -> IntArray:
    """i4[D, D]: for each device, where its ops go if they can't lie there, first choice first.

    The device itself, then CPUs of its task, then other devices of its task, then other tasks':
    TensorFlow's soft placement, too, falls back on the CPU of the same task.
    """
    tasks = problem.device_tasks
    kinds = problem.device_types
    order = [
        sorted(
            range(problem.num_devices),
            key=lambda other: (
                other != device,
                tasks[other] != tasks[device],
                kinds[other] != "CPU",
                other,
            ),
        )
        for device in range(problem.num_devices)
    ]
    return np.array(order, dtype=np.int32)


def legal(problem: Problem, wanted: IntArray) -> IntArray:
    """i4[N]: what was wanted where that is possible, the nearest possible thing elsewhere.

    A colocation group goes where most of its seconds are wanted; what can't lie where it is
    wanted takes the first device of `fallback_order` that it can lie on.

    Args:
      wanted: i4[N].
    """
    allowed = problem.allowed()
    placed = _united(problem, np.asarray(wanted, dtype=np.int32), allowed)
    elsewhere = np.flatnonzero(~allowed[np.arange(len(placed)), placed])
    choices = fallback_order(problem)[placed[elsewhere]]
    first = np.argmax(np.take_along_axis(allowed[elsewhere], choices, axis=1), axis=1)
    placed[elsewhere] = choices[np.arange(len(elsewhere)), first]
    return placed


def completed(problem: Problem, wanted: IntArray, to_users: bool = False) -> IntArray:
    """i4[N]: legal; what is wanted nowhere goes to the first op that it uses.

    Args:
      problem: its ops are in a topological order.
      wanted: i4[N], -1 for nowhere.
      to_users: whether what uses nothing goes to the first op that uses it; else, and where there
        is none, it goes to the first of the working devices.
    """
    graph, wanted = problem.graph, wanted.copy()
    source = graph.tensor_producer[graph.use_tensor]
    open_uses = np.flatnonzero(wanted[graph.use_op] < 0)
    for use in open_uses[np.argsort(graph.use_op[open_uses], kind="stable")].tolist():
        if wanted[graph.use_op[use]] < 0:
            wanted[graph.use_op[use]] = wanted[source[use]]
    for use in np.argsort(graph.use_op, kind="stable")[::-1].tolist() if to_users else ():
        if wanted[source[use]] < 0:
            wanted[source[use]] = wanted[graph.use_op[use]]
    wanted[wanted < 0] = working_devices(problem)[0]
    return legal(problem, wanted)


def _united(problem: Problem, wanted: IntArray, allowed: BoolArray) -> IntArray:
    """Gives every member of a colocation group the device that most of its seconds want."""
    group = problem.graph.colocation_group
    member = np.flatnonzero(group >= 0)
    if not len(member):
        return wanted.copy()
    # Ops of no time have a small vote, so that groups of them are decided, too.
    seconds = fastest_seconds(problem, allowed, member) + 1e-12
    votes = np.zeros((int(group.max()) + 1, problem.num_devices))
    np.add.at(votes, (group[member], wanted[member]), seconds)
    united = wanted.copy()
    united[member] = votes.argmax(axis=1)[group[member]]
    return united


def distinct(placements: Sequence[IntArray]) -> IntArray:
    """i4[B, N]: several placements i4[N], in their order, of equal ones the first."""
    first: dict[bytes, IntArray] = {}
    for each in placements:
        first.setdefault(each.tobytes(), each)
    return np.stack(list(first.values()))
