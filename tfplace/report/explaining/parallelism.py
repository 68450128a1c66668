"""What kind of parallelism a placement is: found from where shards, layers and variables lie.

Work is seconds of ops on the devices where they lie; what takes no time has no say.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from graphs.names import original_name
from graphs.op_graph import FloatArray, IntArray, OpGraph
from graphs.problem import Problem
from graphs.protos import JsonObject
from tfplace.grouping.copies import shard_of_op
from tfplace.report.explaining.waiting import short_names
from tfplace.units_text import share_text

ONE_DEVICE, ACCUMULATION = "one_device", "gradient_accumulation"
DATA_PARALLEL, PIPELINE = "data_parallel", "pipeline"
MODEL_PARALLEL, GROUPS, MIXED = "model_parallel", "data_parallel_groups", "mixed"
TENSOR_PARALLEL = "tensor_parallel"

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
      has_pieces: whether weights are cut, so that shards are no parts of the batch.
    """

    kind: str
    true_share: float
    work: FloatArray
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    together_share: float
    stages: tuple[int, ...]
    devices: tuple[int, ...]
    variable_bytes: FloatArray
    has_pieces: bool = False

    @property
    def num_shards(self) -> int:
        """M; 0 where the step is whole."""
        return len(self.work) - 1


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
        has_pieces=_has_pieces(problem, by_op),
    )
    if len(devices) < 2:
        in_turn = known.num_shards and not known.has_pieces
        kind = ACCUMULATION if in_turn else ONE_DEVICE
        return dataclasses.replace(known, kind=kind, true_share=float(share.max(initial=0.0)))
    if not known.num_shards:
        return dataclasses.replace(known, kind=MODEL_PARALLEL)
    if len(groups) == 1:
        return _as_one_group(known, problem, by_op)
    return _as_groups(known, problem, by_op)


def _has_pieces(problem: Problem, by_op: "Work") -> bool:
    """Whether weights are cut, so that shards are no parts of the batch."""
    types = np.array(problem.graph.op_types)
    return bool((types[by_op.shard_of_op >= 0] == "VarHandleOp").any())


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
    if len(sizes) > 1:
        return known
    if known.has_pieces:
        return dataclasses.replace(known, kind=TENSOR_PARALLEL, true_share=share)
    if sizes == {1}:
        return dataclasses.replace(known, kind=DATA_PARALLEL, true_share=share)
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
    """What shards do where, of N ops."""

    shard_of_op: IntArray  # i4[N]; -1 for an op that is whole
    device_of_op: IntArray  # i4[N]
    seconds: FloatArray  # f8[N] what each op takes where it lies


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


# The kind of parallelism of a placement in a few words, for the verdict's sentence.

PURE = 0.95
"""A name that is true of this share of the work needs no "mostly"."""
MAX_LISTED = 4
"""Devices are listed up to this number, and counted beyond it."""
NAMED = 0.05
"""Whole ops, and a device's variables, are spoken of from this share on."""


def parallelism_text(found: Parallelism, problem: Problem) -> str:
    """What kind it is; empty for a whole step on one device, of which there is nothing to say."""
    names = short_names(problem.device_names)
    text = _kind(found, problem, names)
    text = text.replace("shard", "piece") if found.has_pieces else text
    whole = found.work[-1]
    is_told = whole.sum() / (found.work.sum() or 1.0) >= NAMED and len(found.devices) == 1
    if text and found.num_shards and is_told and whole[found.devices[0]] < PURE * whole.sum():
        holding = np.flatnonzero(whole >= NAMED * whole.sum()).tolist()
        text += f"; what is not split lies on {_listed(holding, names)}"
    return text


def _listed(devices: Sequence[int], names: Sequence[str]) -> str:
    """ "GPU:0, GPU:1"; a number of them where there are many."""
    if len(devices) > MAX_LISTED:
        return f"{len(devices)} devices"
    return ", ".join(names[device] for device in devices)


def parallelism_facts(found: Parallelism, problem: Problem) -> JsonObject:
    """report.json's `parallelism` (the contract, section 9)."""
    shares = found.work / (found.work.sum() or 1.0)
    return {
        "kind": found.kind,
        "sentence": parallelism_text(found, problem),
        "true_share": min(found.true_share, 1.0),
        "together_share": min(found.together_share, 1.0),
        "devices": [problem.device_names[device] for device in found.devices],
        "shares": [
            {"device": name, "whole": float(of[-1]), "shards": of[:-1].tolist()}
            for name, of in zip(problem.device_names, shares.T, strict=True)
        ],
    }


def _kind(found: Parallelism, problem: Problem, names: Sequence[str]) -> str:
    over = _devices(found.devices, problem)
    mostly = "mostly " if found.true_share < PURE else ""
    doubt = f": {share_text(found.true_share)} of the shards' work lies " if mostly else ""
    if found.kind == ONE_DEVICE:
        return ""
    if found.kind == ACCUMULATION:
        one = names[found.devices[0]] if found.devices else "one device"
        shards = "both shards" if found.num_shards == 2 else f"all {found.num_shards} shards"
        return f"{shards} on {one} (gradient accumulation)"
    if found.kind == MODEL_PARALLEL and not found.num_shards:
        return f"model parallel over {over}"
    if found.kind == MODEL_PARALLEL:
        with_op = f"{mostly}model parallel over {over}, all shards of an op together"
        return with_op + (doubt and f"{doubt}so")
    if found.kind == PIPELINE:
        stages = " → ".join(names[device] for device in found.stages)
        piped = f"{mostly}a pipeline of {len(found.stages)} stages ({stages}) for "
        return f"{piped}{found.num_shards} shards" + (doubt and f"{doubt}with its stage")
    if found.kind in (DATA_PARALLEL, TENSOR_PARALLEL):
        over = _devices([device for _, mine in found.groups for device in mine], problem)
        own = doubt and f"{doubt}on the shard's own device"
        if found.kind == TENSOR_PARALLEL:
            where = "on each"
            if len(found.groups[0][1]) > 1:
                where = f"in each group: {_lists(found, names)}"
                own = own.replace("own device", "own group")
            piece = f"a piece of each weight that is cut {where}"
            return f"{mostly}tensor parallel over {over}, {piece}{own}"
        spread = _variables(found, names)
        return f"{mostly}data parallel over {over}{_on_each(found, names)}{spread}{own}"
    if found.kind == GROUPS:
        inside = f"model parallel over {len(found.groups[0][1])} devices"
        if found.stages:
            inside = f"a pipeline of {len(found.stages)} stages"
        over = f"{len(found.groups)} groups of devices ({_lists(found, names)})"
        in_group = doubt and f"{doubt}in its group"
        return f"{mostly}data parallel in {over}, each {inside}{in_group}"
    split = found.work[:-1]  # there are shards
    home_share = float(split.max(axis=1).sum() / (split.sum() or 1.0))
    return (
        f"a mixture over {over}: {share_text(home_share)} of the shards' work lies on the "
        f"device that does most for its shard, {share_text(found.together_share)} where most of "
        "its op's shards lie"
    )


def _devices(devices: Sequence[int], problem: Problem) -> str:
    types = [problem.device_types[device] for device in devices]
    gpus, cpus = types.count("GPU"), types.count("CPU")
    if not gpus or gpus + cpus < len(types):
        return f"{len(types)} devices"
    text = f"{gpus} {'GPU' if gpus == 1 else 'GPUs'}"
    return f"{text} and {'a CPU' if cpus == 1 else f'{cpus} CPUs'}" if cpus else text


def _on_each(found: Parallelism, names: Sequence[str]) -> str:
    """How many shards share a device, where any do."""
    counts = {names[devices[0]]: len(shards) for shards, devices in found.groups}
    if set(counts.values()) == {1}:
        return ""
    if len(set(counts.values())) == 1:
        return f", {next(iter(counts.values()))} shards on each (gradient accumulation)"
    if len(counts) > MAX_LISTED:
        return f", {min(counts.values())} to {max(counts.values())} shards on each"
    each = (f"{n} {'shard' if n == 1 else 'shards'} on {name}" for name, n in counts.items())
    return f" ({', '.join(each)})"


def _variables(found: Parallelism, names: Sequence[str]) -> str:
    """Where the variables lie."""
    total = found.variable_bytes.sum()
    if total <= 0:
        return ""
    share = found.variable_bytes / total
    if share.max() >= PURE:
        return f", the variables on {names[int(share.argmax())]}"
    holding = int((share >= min(NAMED, 0.5 / len(found.groups))).sum())
    where = "all" if holding >= len(found.groups) else f"{holding} of them"
    return f", the variables spread over {where}"


def _lists(found: Parallelism, names: Sequence[str]) -> str:
    """The groups' devices."""
    return "; ".join(" + ".join(names[d] for d in devices) for _, devices in found.groups)
