"""Devices for the ops inside loops and conditionals: those of their unit.

TensorFlow lets an op of a body that has no device lie where its loop or conditional lies, and
honours one that has a device of its own. Written out, a person and `tfplace check` can see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphs.building.callees import referred_functions
from graphs.building.conditionals import CONDITIONALS
from graphs.building.unit_bodies import LOOPS
from graphs.flat_graph import FlatGraph, Origin


def devices_inside_units(flat: FlatGraph, device_of_node: Sequence[str]) -> dict[Origin, str]:
    """{op of a body: its unit's device}, for functional loops and conditionals.

    Left out are functions that something else runs, too: a call, a compiled function (which XLA
    places), or a unit on another device. TensorFlow lets their ops follow whoever runs them.

    Args:
      flat: the graph.
      device_of_node: device string of each of its nodes.
    """
    library = {function.signature.name: function for function in flat.graph_def.library.function}
    devices_of: dict[str, set[str]] = {}
    for node, device in zip(flat.graph_def.node, device_of_node, strict=True):
        is_opened_inside = node.op in LOOPS | CONDITIONALS
        for name in _reached([node], library):
            devices_of.setdefault(name, set()).add(device if is_opened_inside else "")
    for origin in flat.origins:
        if origin.function in devices_of:
            devices_of[origin.function].add("")
    found = {}
    for name, devices in devices_of.items():
        (device, *others) = devices
        if device and not others:
            for node in library[name].node_def:
                found[Origin(name, node.name)] = device
    return found


def _reached(nodes: Sequence[Any], library: Mapping[str, Any]) -> set[str]:
    """The functions that nodes refer to, and those that these do."""
    found: set[str] = set()
    pending = list(referred_functions(nodes, library))
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(referred_functions(library[name].node_def, library))
    return found
