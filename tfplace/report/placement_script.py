"""A placement as Python, to be pasted into the code that builds the graph.

Names of ops are paths of scopes. The fewest entries of a table {scope: device} are found that give
each op its device when the longest scope that has an entry counts (as routing tables are made
short: Draves et al., "Constructing optimal IP routing tables", 1999, for more than two branches).
"""

from __future__ import annotations

import collections
import dataclasses
import pprint
from collections.abc import Mapping

from graphs.counted import counted

_SCRIPT = '''\
"""Devices of {num_ops} of {model}, as tfplace chose them on {cluster}.

The longest scope that an op lies in counts; a key without "/" at its end is a single op. In code
that builds a graph with these names, within a tf.Graph or a tf.function:

    with tf.compat.v1.device(device_of):
        ...

or layer by layer: with tf.device(DEVICE_OF["encoder/"]): ...
Ops that the run doesn't have get a device, too: leave allow_soft_placement on.
"""

DEVICE_OF = {{
{table}}}


def device_of(op):
    """The device of an op, by the longest scope that has one."""
    parts = op.name.split("/")
    scopes = ["/".join(parts[:length]) + "/" for length in range(len(parts) - 1, 0, -1)]
    return next(DEVICE_OF[key] for key in (op.name, *scopes, "") if key in DEVICE_OF)
'''


def placement_script(device_of_op: Mapping[str, str], model: str, cluster: str) -> str:
    """A module with a table {scope: device}, and a function that looks an op up in it.

    Args:
      device_of_op: {op: device}, a placement.json; not empty.
      model: its path, for the heading.
      cluster: its name.
    """
    table = "".join(
        f"    {key!r}: {device!r},  # {counted(num_ops, 'op')}\n"
        for key, (device, num_ops) in device_of_scope(device_of_op).items()
    )
    heading = [pprint.saferepr(text)[1:-1].replace('"', "'") for text in (model, cluster)]
    return _SCRIPT.format(
        num_ops=counted(len(device_of_op), "op"), model=heading[0], cluster=heading[1], table=table
    )


def device_of_scope(device_of_op: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """{scope or op: (device, how many ops have it from this entry)}, as few as possible.

    A scope ends with "/"; "" is all that there is.

    Args:
      device_of_op: {op: device}; not empty.
    """
    root = _Scope("")
    for name, device in sorted(device_of_op.items()):
        root.add(name, device)
    root.choose()
    entries: dict[str, tuple[str, int]] = {}
    root.write(entries, "", "")
    return entries


@dataclasses.dataclass
class _Scope:
    """A scope, or an op.

    Attributes:
      key: its entry's.
      inside: by the next part of the name; empty for an op.
      devices: those with the fewest entries below, if this one had it; in falling order of ops.
    """

    key: str
    inside: dict[str, _Scope] = dataclasses.field(default_factory=dict)
    devices: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, device: str) -> None:
        scope = self
        *parts, _ = name.split("/")
        for part in parts:
            scope = scope.inside.setdefault(f"{part}/", _Scope(f"{scope.key}{part}/"))
        scope.inside[name] = _Scope(name, devices=[device])

    def choose(self) -> collections.Counter[str]:
        """Finds `devices` here and below; returns how many ops each device has."""
        if not self.inside:
            return collections.Counter(self.devices)
        ops: collections.Counter[str] = collections.Counter()
        for scope in self.inside.values():
            ops += scope.choose()
        votes = collections.Counter(d for scope in self.inside.values() for d in scope.devices)
        most = max(votes.values())
        wanted = [device for device, count in votes.items() if count == most]
        self.devices = sorted(wanted, key=lambda device: (-ops[device], device))
        return ops

    def write(self, entries: dict[str, tuple[str, int]], above: str, device: str) -> None:
        """Adds an entry where what is above has another device, and counts the ops."""
        if device not in self.devices:
            above, device = self.key, self.devices[0]
            entries[above] = (device, 0)
        if not self.inside:
            entries[above] = (device, entries[above][1] + 1)
        for scope in self.inside.values():
            scope.write(entries, above, device)
