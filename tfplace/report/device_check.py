"""Would the device strings that a model carries run on a cluster, op by op?"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console

from graphs.by_key import by_key
from graphs.counted import counted
from graphs.devices_asked import matching_devices
from graphs.function_library import bodies
from graphs.host.did_you_mean import did_you_mean
from graphs.pricing.kernels import kernel_table
from graphs.protos import JsonObject, NodeDef
from rewrite.pass_base import op_path
from tfplace.grouping.copies import shard_of_op
from tfplace.measurement.calibration.trial import Trial
from tfplace.measurement.device_name import device_key
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.split_facts import split_facts, split_sentences
from tfplace.report.text import print_facts
from tfplace.simulation.simulated import Simulated
from tfplace.units_text import bytes_text, seconds_text

UNKNOWN_DEVICE, NO_KERNEL, COLOCATION = "unknown_device", "no_kernel", "colocation"
MAX_NAMED = 3
"""How many devices, or ops of a colocation group, a message names."""
MAX_ROWS = 20


@dataclasses.dataclass(frozen=True)
class Misplaced:
    """An op that can't run where the model wants it."""

    op: str  # its name; "function/node" for an op in a function that the run doesn't open
    op_type: str  # as TensorFlow calls it
    asked: str  # its device string; empty where it has none
    reason: str  # UNKNOWN_DEVICE, NO_KERNEL or COLOCATION
    message: str  # what the cluster has instead


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """What a step needs of one device."""

    peak_bytes: int  # the most that is held at once
    usable_bytes: int  # the device's memory without the reserve

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.usable_bytes


@dataclasses.dataclass(frozen=True)
class DeviceCheck:
    """Whether a model runs on a cluster as its device strings say.

    Attributes:
      path: of the model.
      kind: of the model's file.
      cluster: the cluster's name.
      num_ops: ops of the run, its functions opened, and ops of the model beside the run.
      devices_asked: {device string: ops}; "" for those that ask for none.
      misplaced: all ops that can't run where they are asked to, in the order of the graph.
      memory: {device: peak and limit} of a run in which TensorFlow moves misplaced ops.
      runs: whether nothing is misplaced and everything fits.
      split: how --shards splits the step; None where it is as it came.
      num_shards: into how many parts the checked step is split, also if it came so.
      no_kernel: {device: op types of the model without a kernel for their dtypes there}.
      tried: what the devices did when they were tried; None where they were not.
    """

    path: str
    kind: str
    cluster: str
    num_ops: int
    devices_asked: Mapping[str, int]
    misplaced: Sequence[Misplaced]
    memory: Mapping[str, DeviceMemory]
    runs: bool
    split: JsonObject | None = None
    num_shards: int = 1
    no_kernel: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    tried: Trial | None = None


@dataclasses.dataclass(frozen=True)
class _Asked:
    """An op of the model and where it asks to be."""

    path: str  # its name, as a person finds it in the model
    node: NodeDef  # the NodeDef with its device string
    op: int  # its number in the op graph; -1 where it doesn't belong to the run


def check_devices(prepared: PreparedModel, given: Simulated) -> DeviceCheck:
    """Looks at every op of the model that is loaded: those of the run and those beside it.

    Kernels are looked up by op type and dtypes. In a run that is opened, an op without a device
    string takes that of its call.

    Args:
      prepared: the model and the cluster.
      given: the placement that the model came with, simulated, for the peaks of memory.
    """
    asked = list(_asked(prepared))
    names = prepared.cluster.device_names
    matches = {device: matching_devices(device, names) for device in {a.node.device for a in asked}}
    matches[""] = list(range(len(names)))
    kernels, types = kernel_table(), prepared.problem.device_types

    def can_run(node: NodeDef, device: int) -> bool:
        return kernels.matching(node, types[device]) is not None

    # A call is no op by itself: what it calls is checked, opened or as a function's body.
    calls = {function.signature.name for function in prepared.source.graph_def.library.function}
    alone = [
        _wrong(a, matches[a.node.device], names, can_run) for a in asked if a.node.op not in calls
    ]
    misplaced = [wrong for wrong in alone if wrong is not None]
    missing = {
        name: sorted(
            {a.node.op for a in asked if a.node.op not in calls and not can_run(a.node, d)}
        )
        for d, name in enumerate(names)
    }
    named = {wrong.op for wrong in misplaced}
    misplaced += _contradictions(prepared, [a for a in asked if a.path not in named], matches)
    usable = given.problem.usable_bytes().astype(np.int64).tolist()
    memory = {
        name: DeviceMemory(peak, limit)
        for (name, peak), limit in zip(given.peak_bytes.items(), usable, strict=True)
    }
    return DeviceCheck(
        path=prepared.source.path,
        kind=prepared.source.kind,
        cluster=prepared.cluster.name,
        num_ops=len(asked),
        devices_asked=dict(collections.Counter(a.node.device for a in asked).most_common()),
        misplaced=misplaced,
        memory=memory,
        runs=not misplaced and all(device.fits for device in memory.values()),
        split=split_facts(prepared.split),
        num_shards=1 + max(0, int(shard_of_op(prepared.problem).max(initial=0))),
        no_kernel=missing,
    )


def _asked(prepared: LoadedModel) -> Iterator[_Asked]:
    """The ops of the opened run, then those of the model that are not in it."""
    seen = set()
    nodes = prepared.flat.graph_def.node
    ops = prepared.built.op_of_node.tolist()
    for node, origin, op in zip(nodes, prepared.flat.origins, ops, strict=True):
        if origin.node:
            seen.add((origin.function, origin.node))
            yield _Asked(node.name, node, op)
    for function, rest in bodies(prepared.source.graph_def):
        for node in rest:
            if (function, node.name) not in seen:
                yield _Asked(op_path(function, node.name), node, -1)


def _wrong(
    asked: _Asked,
    matches: Sequence[int],
    names: Sequence[str],
    can_run: Callable[[NodeDef, int], bool],
) -> Misplaced | None:
    """What is wrong with one op, whatever the others ask for; None for nothing."""
    node = asked.node
    if not matches:
        hint = did_you_mean(node.device, names) or f"; it has {_few(names)}"
        message = f"the cluster has no such device{hint}"
        return Misplaced(asked.path, node.op, node.device, UNKNOWN_DEVICE, message)
    if any(can_run(node, device) for device in matches):
        return None
    others = [name for device, name in enumerate(names) if can_run(node, device)]
    message = f"no kernel for its dtypes there; it has one on {_few(others) or 'no device'}"
    return Misplaced(asked.path, node.op, node.device, NO_KERNEL, message)


def _contradictions(
    prepared: PreparedModel, asked: Sequence[_Asked], matches: Mapping[str, Sequence[int]]
) -> Iterator[Misplaced]:
    """Ops of one colocation group whose device strings, or kernels, leave no common device."""
    group, names = prepared.problem.graph.colocation_group, prepared.cluster.device_names
    kernels = np.isfinite(prepared.problem.op_seconds)
    members = by_key((int(group[a.op]), a) for a in asked if a.op >= 0 and group[a.op] >= 0)
    for number, ops in members.items():
        common = kernels[group == number].all(axis=0)
        said = [a for a in ops if a.node.device]
        for a in said:
            common &= np.isin(np.arange(len(common)), matches[a.node.device])
        if said and not common.any():
            # The first op that asks for a device other than the group's first.
            first = said[0]
            other = next((a for a in said if a.node.device != first.node.device), first)
            reasons = [f"{first.path} asks for {first.node.device}"] if other is not first else []
            for a in ops:
                if len(reasons) < MAX_NAMED and not kernels[a.op].all():
                    where = _few([names[d] for d in np.flatnonzero(kernels[a.op]).tolist()])
                    has = f"kernels only on {where}" if where else "no kernel on any device"
                    reasons.append(f"{a.path} has {has}")
            message = f"shares a device with {len(ops) - 1} ops (group of {ops[0].path}): "
            message += "; ".join(reasons)
            yield Misplaced(other.path, other.node.op, other.node.device, COLOCATION, message)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED])
    return f"{shown} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else shown


def print_check(check: DeviceCheck, out: Console) -> None:
    """Prints what the model asks for, what can't be had, memory, and the verdict."""
    print_facts(_facts(check), out)


def _facts(check: DeviceCheck) -> Iterator[tuple[str, str]]:
    yield "model", f"{check.path} ({check.kind}), {counted(check.num_ops, 'op')}"
    yield "cluster", f"{check.cluster}, {counted(len(check.memory), 'device')}"
    if check.split is not None:
        yield from split_sentences(check.split)
    elif check.num_shards > 1:
        yield "split", f"the step came split into {check.num_shards} shards"
    for device, count in itertools.islice(check.devices_asked.items(), MAX_ROWS):
        yield "asked", f"{device or 'no device'}: {counted(count, 'op')}"
    for bad in check.misplaced[:MAX_ROWS]:
        where = f"on {bad.asked}" if bad.asked else "anywhere"
        yield "not there", f"{bad.op} ({bad.op_type}) {where}: {bad.message}"
    more = len(check.misplaced) - MAX_ROWS
    if more > 0:
        yield "", f"and {counted(more, 'more op')} (--format=json has all)"
    for device, memory in check.memory.items():
        used = f"{bytes_text(memory.peak_bytes)} of {bytes_text(memory.usable_bytes)}"
        yield "memory", f"{device}: {used}{'' if memory.fits else ', too much'}"
    yield from _tried_facts(check)
    yield "verdict", verdict(check)


def _tried_facts(check: DeviceCheck) -> Iterator[tuple[str, str]]:
    """What each device and link did, and which of the model's op types have no kernel there."""
    if check.tried is None:
        return
    for device in check.tried.devices:
        limit = f"refused {bytes_text(device.asked_bytes)} and ran on"
        ran = f"runs what is placed on it; {device.limit_failure or limit}"
        said = device.failure or (ran if device.asked_bytes else "not tried")
        yield "tried", f"{device.device}: {said}"
        missing = check.no_kernel.get(device.device, ())
        yield "kernels", f"all the model's op types{f' but {_few(missing)}' if missing else ''}"
    for link in check.tried.links:
        rate = link.failure or "arrives, in less time than can be told from noise"
        if link.bytes_per_second is not None and link.latency_seconds is not None:
            rate = f"{bytes_text(link.bytes_per_second)}/s, {seconds_text(link.latency_seconds)}"
        yield "link", f"{link.source} to {link.target}: {rate}"
    yield "devices", trial_sentence(check.tried)


def trial_sentence(tried: Trial) -> str:
    """One sentence: what works, or the first thing that doesn't."""
    failed = [device for device in tried.devices if device.failure]
    if failed:
        others = f" ({counted(len(failed) - 1, 'other')} neither)" if len(failed) > 1 else ""
        return f"{failed[0].device} does not work{others}: {failed[0].failure}"
    for device in tried.devices:
        if device.limit_failure:
            return f"{device.device} does not hold its memory limit: {device.limit_failure}"
    for link in tried.links:
        if link.failure:
            return f"nothing goes from {link.source} to {link.target}: {link.failure}"
    kinds = collections.Counter(device_key(each.device).type for each in tried.devices)
    works = " and ".join(counted(count, kind) for kind, count in sorted(kinds.items()))
    if kinds["GPU"] < 2:
        return f"{works} work{'s' * (len(tried.devices) == 1)}"
    peers = sum(map(len, tried.peers.values()))
    all_pairs = kinds["GPU"] * (kinds["GPU"] - 1)
    access = "yes" if peers == all_pairs else f"{peers} of {all_pairs} pairs" if peers else "no"
    return f"{works} work; peer access between GPUs: {access}"


def verdict(check: DeviceCheck) -> str:
    """One sentence: does it run there as it says?"""
    if check.runs and not any(check.devices_asked):
        return f"asks for no device, so that TensorFlow chooses on {check.cluster}; it fits there"
    if check.runs:
        return f"runs on {check.cluster} as its device strings say"
    parts = [f"{device} is too small" for device, memory in check.memory.items() if not memory.fits]
    if check.misplaced:
        count = f"{len(check.misplaced):,} of {check.num_ops:,} ops"
        parts.insert(0, f"{count} can't run where they are asked")
    if check.tried is not None and not check.tried.works:
        parts.append(trial_sentence(check.tried))
    return f"does not run on {check.cluster} as it is: {'; '.join(parts)}"
