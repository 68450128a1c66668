"""Gives the ops inside loops and conditionals the device of their loop or conditional.

That is where TensorFlow puts an op of a body that has no device string. With the string written
out, a person and `tfplace check` can see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphs import op_types
from graphs.flat_graph import FlatGraph, Origin
from graphs.function_library import reached_functions


def devices_inside_units(flat: FlatGraph, device_of_node: Sequence[str]) -> dict[Origin, str]:
    """{op of a body: its unit's device}, for functional loops and conditionals.

    The ops of a function are left out where something else runs it, too: a call, a compiled
    function (which XLA places), or a unit on another device. TensorFlow puts such ops on the
    device of whichever op runs them.

    Args:
      flat: the graph.
      device_of_node: device string of each of its nodes.
    """
    devices_of: dict[str, set[str]] = {}
    for node, device in zip(flat.graph_def.node, device_of_node, strict=True):
        is_opened_inside = node.op in op_types.LOOPS | op_types.CONDITIONALS
        for name in reached_functions([node], flat.library):
            devices_of.setdefault(name, set()).add(device if is_opened_inside else "")
    for origin in flat.origins:
        if origin.function in devices_of:
            devices_of[origin.function].add("")
    device_of_inner_op = {}
    for name, devices in devices_of.items():
        (device, *others) = devices
        if device and not others:
            for node in flat.library[name].node_def:
                device_of_inner_op[Origin(name, node.name)] = device
    return device_of_inner_op
