"""Whether a split step lies on devices in the order in which its ops run, as a pipeline does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphs.op_graph import FloatArray, IntArray, OpGraph

LEAST = 0.05
"""A stage has at least this share of the work."""
BEGUN = 0.05
"""A stage begins where this share of its work has begun: what little runs before means nothing."""


class Work(NamedTuple):
    """What shards do where, of N ops.

    Attributes:
      shard_of_op: i4[N]; -1 for an op that is whole.
      device_of_op: i4[N].
      seconds: f8[N] what each op takes where it lies.
    """

    shard_of_op: IntArray
    device_of_op: IntArray
    seconds: FloatArray


class Stages(NamedTuple):
    """How much of the work lies with its stage, and the stages' devices, first layers first."""

    share: float
    devices: tuple[int, ...]


def levels(graph: OpGraph) -> IntArray:
    """i4[N]: how many ops come before each on the longest path to it."""
    source, target, _ = graph.op_edges()
    order = np.argsort(target, kind="stable")  # ops are in a topological order
    level = [0] * graph.num_ops
    for before, op in zip(source[order].tolist(), target[order].tolist(), strict=True):
        level[op] = max(level[op], level[before] + 1)
    return np.array(level, dtype=np.int32)


def stages_of(work: Work, level: IntArray, num_devices: int) -> Stages:
    """The pipeline that is nearest to where the shards' ops lie.

    From the first level to the last, work goes from stage to stage, and all the way back: the
    gradient of a layer lies with the layer. Layers that run in turns, as those of an unrolled
    recurrent network do, are no stages.

    Args:
      work: which shards' ops are looked at.
      level: i4[N], see `levels`.
      num_devices: D.
    """
    split = np.flatnonzero(work.shard_of_op >= 0)
    _, place = np.unique(level[split], return_inverse=True)
    by_level = np.zeros((int(place.max(initial=-1)) + 1, num_devices))
    np.add.at(by_level, (place, work.device_of_op[split]), work.seconds[split])
    if not by_level.any():
        return Stages(0.0, ())
    by_device = by_level.sum(axis=0)
    used = np.flatnonzero(by_device >= LEAST * by_level.sum())
    begun = np.cumsum(by_level[:, used], axis=0) >= BEGUN * by_device[used]
    in_order = used[np.argsort(begun.argmax(axis=0), kind="stable")]
    share = _covered(by_level[:, in_order]) / by_level.sum()
    return Stages(float(share), tuple(in_order.tolist()))


def _covered(work: FloatArray) -> float:
    """The most work f8[L, S] that is done at its stage, if stages only grow and then only shrink.

    there[s], back[s]: the most until now, if the work has come to stage s on its way there or back.
    """
    there = back = np.zeros(work.shape[1])
    for row in work:
        turned = np.maximum(there, back)
        back = np.maximum.accumulate(turned[::-1])[::-1] + row
        there = np.maximum.accumulate(there) + row
    return float(max(there.max(initial=0.0), back.max(initial=0.0)))
