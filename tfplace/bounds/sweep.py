"""How soon ops can end, as far as they were visited: what the arguments of the path bound share."""

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled_part
from graphs.op_graph import FloatArray, LongArray
from tfplace.bounds.relaxation import DeviceClasses, Edges


class Sweep(NamedTuple):
    """The relaxed problem, and how soon the ops visited so far can end."""

    row: LongArray  # i8[N+1] of Edges
    source: LongArray  # i8[E] of Edges
    cost: FloatArray  # f8[E] of Edges
    seconds: FloatArray  # f8[N, K] of each op on each class
    least: FloatArray  # f8[N] the least of them
    slots: FloatArray  # f8[K] of one device of a class
    num_devices: LongArray  # i8[K] of a class
    group: LongArray  # i8[N] colocation group, -1 for none
    end: FloatArray  # f8[N, K] filled in: no schedule ends the op sooner on a device of this class
    soonest: FloatArray  # f8[N] filled in: the least of them


def new_sweep(classes: DeviceClasses, edges: Edges, group: LongArray) -> Sweep:
    """A sweep that has not visited any op."""
    return Sweep(
        row=edges.row,
        source=edges.source,
        cost=edges.cost,
        seconds=classes.seconds,
        least=classes.seconds.min(axis=1),
        slots=classes.slots,
        num_devices=classes.num_devices,
        group=group,
        end=np.full(classes.seconds.shape, np.inf),
        soonest=np.full(len(classes.seconds), np.inf),
    )


@compiled_part
def soonest_elsewhere(sweep: Sweep, op: int, kind: int) -> float:
    """How soon an op can end on any device but one certain device of class `kind`."""
    if sweep.num_devices[kind] > 1:
        return sweep.soonest[op]
    soonest = np.inf
    for other in range(len(sweep.num_devices)):
        if other != kind:
            soonest = min(soonest, sweep.end[op, other])
    return soonest


@compiled_part
def head_on(sweep: Sweep, op: int, kind: int) -> float:
    """How soon an op can start on a device of class `kind`; inf where it can't run there."""
    if sweep.end[op, kind] == np.inf:
        return np.inf
    return sweep.end[op, kind] - sweep.seconds[op, kind]
