"""What kind of parallelism a placement is: found from where shards, layers and variables lie.

Work is seconds of ops on the devices where they lie; what takes no time has no say.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from graphs.names import original_name
from graphs.op_graph import FloatArray, IntArray, OpGraph
from graphs.problem import Problem
from tfplace.grouping.copies import shard_of_op

ONE_DEVICE, ACCUMULATION = "one_device", "gradient_accumulation"
DATA_PARALLEL, PIPELINE = "data_parallel", "pipeline"
MODEL_PARALLEL, GROUPS, MIXED = "model_parallel", "data_parallel_groups", "mixed"

USED = 0.02
"""A device is used if it has at least this share of the shards' work, or half of an even share."""
OWN = 0.05
"""A device belongs to a group of shards if it has this share of the group's work, and if more than
half of what it does for shards is for them."""
ALIKE = 0.5
"""Two shards are one group if they share more than this part of their work's devices."""
MOSTLY, PIPED = 0.7, 0.85
"""The least shares of the work that a name has to be true of."""


@dataclasses.dataclass(frozen=True)
class Parallelism:
    """The kind of a placement, and the figures that it was told from.

    Attributes:
      kind: one of the names above.
      true_share: share of the shards' work, or of all work in a whole step, that the name is true
        of; 1 where there is nothing to doubt.
      work: f8[M + 1, D] seconds of each shard on each device; the last row's ops are whole.
      groups: of shards that share devices: (its shards, its devices), with the first shard first.
      together_share: share of the shards' work in ops whose shards all lie on one device.
      stages: of a pipeline, in the order of the layers: devices; of groups, those of the first.
      devices: that shards use, by number; in a whole step, that ops do.
      variable_bytes: f8[D] of variables.
    """

    kind: str
    true_share: float
    work: FloatArray
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    together_share: float
    stages: tuple[int, ...]
    devices: tuple[int, ...]
    variable_bytes: FloatArray

    @property
    def num_shards(self) -> int:
        """M; 0 where the step is whole."""
        return len(self.work) - 1

    @property
    def whole_share(self) -> float:
        """Share of all work that is in whole ops."""
        return float(self.work[-1].sum() / (self.work.sum() or 1.0))

    @property
    def home_share(self) -> float:
        """Share of the shards' work that lies on the device that has most of its shard."""
        split = self.work[:-1]
        return float(split.max(axis=1).sum() / (split.sum() or 1.0)) if len(split) else 1.0


def parallelism_of(problem: Problem, device_of_op: IntArray) -> Parallelism:
    """Tells the kind of a placement i4[N] that can run."""
    shard = shard_of_op(problem)
    seconds = problem.op_seconds[np.arange(problem.num_ops), device_of_op]
    by_op = Work(shard, device_of_op, seconds)
    work = np.zeros((int(shard.max(initial=-1)) + 2, problem.num_devices))
    np.add.at(work, (shard, device_of_op), seconds)
    groups = _groups(work[:-1])
    counted = work[:-1].sum(axis=0) if work[:-1].any() else work.sum(axis=0)
    share = counted / (counted.sum() or 1.0)
    devices = np.flatnonzero(share >= min(USED, 0.5 / len(share)))
    held = np.zeros(problem.num_devices)
    np.add.at(held, device_of_op, problem.graph.op_persistent_bytes)
    known = Parallelism(
        kind=MIXED,
        true_share=1.0,
        work=work,
        groups=groups,
        together_share=_together(problem, by_op),
        stages=(),
        devices=tuple(devices.tolist()),
        variable_bytes=held,
    )
    if len(devices) < 2:
        kind = ACCUMULATION if known.num_shards else ONE_DEVICE
        return dataclasses.replace(known, kind=kind, true_share=float(share.max(initial=0.0)))
    if not known.num_shards:
        return dataclasses.replace(known, kind=MODEL_PARALLEL)
    if len(groups) == 1:
        return _as_one_group(known, problem, by_op)
    return _as_groups(known, problem, by_op)


def _as_one_group(known: Parallelism, problem: Problem, by_op: "Work") -> Parallelism:
    """Shards that use the same devices: layer by layer, op by op, or neither."""
    if known.together_share < MOSTLY:
        return known
    stages = stages_of(by_op, levels(problem.graph), problem.num_devices)
    if stages.share >= PIPED and len(stages.devices) > 1:
        share = min(stages.share, known.together_share)
        return dataclasses.replace(known, kind=PIPELINE, stages=stages.devices, true_share=share)
    return dataclasses.replace(known, kind=MODEL_PARALLEL, true_share=known.together_share)


def _as_groups(known: Parallelism, problem: Problem, by_op: "Work") -> Parallelism:
    """Shards, or groups of them, that use other devices than the others."""
    own = sum(known.work[np.ix_(shards, devices)].sum() for shards, devices in known.groups)
    share = float(own / known.work[:-1].sum())
    if share < MOSTLY or not all(devices for _, devices in known.groups):
        return known
    sizes = {len(devices) for _, devices in known.groups}
    if sizes == {1}:
        return dataclasses.replace(known, kind=DATA_PARALLEL, true_share=share)
    if len(sizes) > 1:
        return known
    level, found = levels(problem.graph), []
    for shards, devices in known.groups:
        inside = np.isin(by_op.shard_of_op, shards) & np.isin(by_op.device_of_op, devices)
        in_group = by_op._replace(shard_of_op=np.where(inside, by_op.shard_of_op, -1))
        found.append(stages_of(in_group, level, problem.num_devices))
    are_piped = all(stages.share >= PIPED for stages in found)
    is_alike = are_piped and len({len(stages.devices) for stages in found}) == 1
    stages = found[0].devices if is_alike else ()
    return dataclasses.replace(known, kind=GROUPS, true_share=share, stages=stages)


def _groups(work: FloatArray) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Shards that use the same devices, and which devices are theirs more than any other's."""
    if not len(work):
        return ()
    profile = work / np.maximum(work.sum(axis=1, keepdims=True), 1e-300)
    alike = np.minimum(profile[:, None], profile[None]).sum(axis=2) > ALIKE
    count, group = connected_components(sparse.csr_array(alike), directed=False)
    by_group = np.stack([work[group == number].sum(axis=0) for number in range(count)])
    enough = by_group >= OWN * by_group.sum(axis=1, keepdims=True)
    is_own = enough & (by_group > 0.5 * by_group.sum(axis=0))
    return tuple(
        (
            tuple(np.flatnonzero(group == number).tolist()),
            tuple(np.flatnonzero(is_own[number]).tolist()),
        )
        for number in range(count)
    )


def _together(problem: Problem, by_op: "Work") -> float:
    """Share of the shards' work that lies where most of the same op's shards do."""
    split = np.flatnonzero(by_op.shard_of_op >= 0)
    if not len(split):
        return 1.0
    names = [original_name(problem.graph.op_names[op]) for op in split.tolist()]
    _, unit = np.unique(names, return_inverse=True)
    by_unit = np.zeros((int(unit.max()) + 1, problem.num_devices))
    np.add.at(by_unit, (unit, by_op.device_of_op[split]), by_op.seconds[split])
    return float(by_unit.max(axis=1).sum() / (by_unit.sum() or 1.0))


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
