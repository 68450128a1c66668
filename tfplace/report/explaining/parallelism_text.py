"""The kind of parallelism of a placement in a few words, for the verdict's sentence."""

from collections.abc import Sequence

import numpy as np

from graphs.problem import Problem
from graphs.protos import JsonObject
from tfplace.report.explaining import parallelism as kinds
from tfplace.report.explaining.parallelism import Parallelism
from tfplace.report.explaining.waiting import short_names
from tfplace.units_text import share_text

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
    if text and found.num_shards and found.whole_share >= NAMED:
        whole = found.work[-1]
        if len(found.devices) == 1 and whole[found.devices[0]] < PURE * whole.sum():
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
    match found.kind:
        case kinds.ONE_DEVICE:
            return ""
        case kinds.ACCUMULATION:
            one = names[found.devices[0]] if found.devices else "one device"
            shards = "both shards" if found.num_shards == 2 else f"all {found.num_shards} shards"
            return f"{shards} on {one} (gradient accumulation)"
        case kinds.MODEL_PARALLEL if not found.num_shards:
            return f"model parallel over {over}"
        case kinds.MODEL_PARALLEL:
            with_op = f"{mostly}model parallel over {over}, all shards of an op together"
            return with_op + (doubt and f"{doubt}so")
        case kinds.PIPELINE:
            stages = " → ".join(names[device] for device in found.stages)
            piped = f"{mostly}a pipeline of {len(found.stages)} stages ({stages}) for "
            return f"{piped}{found.num_shards} shards" + (doubt and f"{doubt}with its stage")
        case kinds.DATA_PARALLEL:
            over = _devices([device for _, mine in found.groups for device in mine], problem)
            own = doubt and f"{doubt}on the shard's own device"
            spread = _variables(found, names)
            return f"{mostly}data parallel over {over}{_on_each(found, names)}{spread}{own}"
        case kinds.GROUPS:
            return f"{mostly}{_groups(found, names)}" + (doubt and f"{doubt}in its group")
    return (
        f"a mixture over {over}: {share_text(found.home_share)} of the shards' work lies on the "
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


def _groups(found: Parallelism, names: Sequence[str]) -> str:
    if found.stages:
        inside = f", each a pipeline of {len(found.stages)} stages"
    else:
        inside = f", each model parallel over {len(found.groups[0][1])} devices"
    lists = "; ".join(" + ".join(names[d] for d in devices) for _, devices in found.groups)
    return f"data parallel in {len(found.groups)} groups of devices ({lists}){inside}"
