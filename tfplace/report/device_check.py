"""Would the device strings that a model carries run on a cluster, op by op?"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.devices_asked import matching_devices
from graphs.host.did_you_mean import did_you_mean
from graphs.pricing.kernels import KernelTable, kernel_table
from rewrite.clear_devices import bodies
from rewrite.pass_base import op_path
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.simulated import Simulated

UNKNOWN_DEVICE, NO_KERNEL, COLOCATION = "unknown_device", "no_kernel", "colocation"
MAX_MEMBERS = 3


@dataclasses.dataclass(frozen=True)
class Misplaced:
    """An op that can't run where the model wants it.

    Attributes:
      op: its name; of an op in a function that the run doesn't open, "function/node".
      op_type: TensorFlow's.
      asked: its device string; empty where it has none.
      reason: UNKNOWN_DEVICE, NO_KERNEL or COLOCATION.
      message: what is there instead.
    """

    op: str
    op_type: str
    asked: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """Attributes: peak_bytes: of a step; usable_bytes: memory without the reserve."""

    peak_bytes: int
    usable_bytes: int

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.usable_bytes


@dataclasses.dataclass(frozen=True)
class DeviceCheck:
    """What was found.

    Attributes:
      path, kind, cluster: what was checked against what.
      num_ops: ops of the run, its functions opened, and ops beside it.
      devices_asked: {device string: ops}; "" for those that ask for none.
      misplaced: all ops that can't run where they are asked to, in the order of the graph.
      memory: {device: peak and limit} of a run in which TensorFlow moves misplaced ops.
      runs: whether nothing is misplaced and everything fits.
    """

    path: str
    kind: str
    cluster: str
    num_ops: int
    devices_asked: Mapping[str, int]
    misplaced: Sequence[Misplaced]
    memory: Mapping[str, DeviceMemory]
    runs: bool


@dataclasses.dataclass(frozen=True)
class _Asked:
    """Attributes: path: as a person finds it; node: with its device; op: -1 beside the run."""

    path: str
    node: Any
    op: int


def check_devices(prepared: PreparedModel, given: Simulated) -> DeviceCheck:
    """Looks at every op of the model that is loaded: those of the run and those beside it.

    Kernels are looked up by op type and dtypes. In a run that is opened, an op without a device
    string takes that of its call. A peak is of the given placement (devices_asked.py).
    """
    asked = list(_asked(prepared))
    names = prepared.cluster.device_names
    matches = {device: matching_devices(device, names) for device in {a.node.device for a in asked}}
    matches[""] = list(range(len(names)))
    single = _Checker(kernel_table(), names, prepared.problem.device_types, matches)
    calls = {function.signature.name for function in prepared.source.graph_def.library.function}
    misplaced = [
        bad for a in asked if a.node.op not in calls and (bad := single.check(a)) is not None
    ]
    wrong = {bad.op for bad in misplaced}
    misplaced += _contradictions(prepared, [a for a in asked if a.path not in wrong], matches)
    memory = _memory(given)
    return DeviceCheck(
        path=prepared.source.path,
        kind=prepared.source.kind,
        cluster=prepared.cluster.name,
        num_ops=len(asked),
        devices_asked=dict(collections.Counter(a.node.device for a in asked).most_common()),
        misplaced=misplaced,
        memory=memory,
        runs=not misplaced and all(device.fits for device in memory.values()),
    )


def _asked(prepared: PreparedModel) -> Iterator[_Asked]:
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


@dataclasses.dataclass(frozen=True)
class _Checker:
    """Attributes: kernels; device_names, device_types [D]; matches: {device string: devices}."""

    kernels: KernelTable
    device_names: Sequence[str]
    device_types: Sequence[str]
    matches: Mapping[str, Sequence[int]]

    def check(self, asked: _Asked) -> Misplaced | None:
        """What is wrong with one op by itself; None for nothing."""
        node = asked.node
        there = self.matches[node.device]
        if not there:
            hint = did_you_mean(node.device, self.device_names)
            message = (
                f"the cluster has no such device{hint or '; it has ' + _few(self.device_names)}"
            )
            return Misplaced(asked.path, node.op, node.device, UNKNOWN_DEVICE, message)
        if any(self._has_kernel(node, device) for device in there):
            return None
        others = [n for d, n in enumerate(self.device_names) if self._has_kernel(node, d)]
        message = f"no kernel for its dtypes there; it has one on {_few(others) or 'no device'}"
        return Misplaced(asked.path, node.op, node.device, NO_KERNEL, message)

    def _has_kernel(self, node: Any, device: int) -> bool:
        return self.kernels.matching(node, self.device_types[device]) is not None


def _contradictions(
    prepared: PreparedModel, asked: Sequence[_Asked], matches: Mapping[str, Sequence[int]]
) -> Iterator[Misplaced]:
    """Ops of one colocation group whose device strings, or kernels, leave no common device."""
    group = prepared.problem.graph.colocation_group
    kernels = np.isfinite(prepared.problem.op_seconds)
    members: dict[int, list[_Asked]] = {}
    for a in asked:
        if a.op >= 0 and group[a.op] >= 0:
            members.setdefault(int(group[a.op]), []).append(a)
    for number, ops in members.items():
        common = kernels[group == number].all(axis=0)
        said = [a for a in ops if a.node.device]
        for a in said:
            common &= np.isin(np.arange(len(common)), matches[a.node.device])
        if said and not common.any():
            yield _contradiction(ops, said, kernels, prepared.cluster.device_names)


def _contradiction(
    ops: Sequence[_Asked], said: Sequence[_Asked], kernels: np.ndarray, names: Sequence[str]
) -> Misplaced:
    """The first op that asks for a device other than the group's first, and why that can't be."""
    first = said[0]
    other = next((a for a in said if a.node.device != first.node.device), first)
    reasons = [f"{first.path} asks for {first.node.device}"] if other is not first else []
    for a in ops:
        if len(reasons) < MAX_MEMBERS and not kernels[a.op].all():
            where = _few([names[d] for d in np.flatnonzero(kernels[a.op]).tolist()])
            reasons.append(f"{a.path} has kernels only on {where or 'no device'}")
    message = f"shares a device with {len(ops) - 1} ops (group of {ops[0].path}): "
    return Misplaced(
        other.path, other.node.op, other.node.device, COLOCATION, message + "; ".join(reasons)
    )


def _memory(given: Simulated) -> dict[str, DeviceMemory]:
    usable = given.problem.usable_bytes().astype(np.int64).tolist()
    return {
        name: DeviceMemory(peak, limit)
        for (name, peak), limit in zip(given.peak_bytes.items(), usable, strict=True)
    }


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_MEMBERS])
    return f"{shown} and {len(names) - MAX_MEMBERS} more" if len(names) > MAX_MEMBERS else shown
