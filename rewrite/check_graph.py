"""Proves that a rewritten graph is the given one apart from devices, order and copied functions."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from graphs.flat_graph import Origin
from graphs.function_library import rename_references
from rewrite.annotate_devices import read_devices
from rewrite.call_graph import copy_of
from rewrite.clear_devices import bodies
from rewrite.order.marks import forget
from rewrite.order.order_edges import OrderEdge, check_order
from rewrite.pass_base import RewriteError, op_path


def check_rewrite(
    given: Any,
    placed: Any,
    device_of_origin: Mapping[Origin, str],
    order: Collection[OrderEdge] = (),
) -> None:
    """Compares a GraphDef with what the passes made of it.

    Args:
      given: the GraphDef before.
      placed: the GraphDef after.
      device_of_origin: the devices asked for; every other op must have none.
      order: the order edges asked for; there must be no others.

    Raises:
      RewriteError: an op, edge, attribute, function or gradient differs, an op is not where it
        was wanted, or one has a device that nobody asked for.
      PlacementError: device_of_origin names an op that the graph doesn't have.
    """
    check_order(placed, order)
    check_same_model(given, placed)
    check_devices(placed, device_of_origin)


def check_devices(placed: Any, device_of_origin: Mapping[Origin, str]) -> None:
    """Reads back where ops are; raises as `check_rewrite` where that is not as it was wanted."""
    for origin, device in read_devices(placed, device_of_origin).items():
        if device != device_of_origin[origin]:
            raise RewriteError(
                f"reading back op {origin.node!r} of {origin.function or 'the main graph'!r}: "
                f"found {device!r}, wanted {device_of_origin[origin]!r}"
            )
    asked = {(origin.function, origin.node) for origin in device_of_origin}
    original = {f.signature.name: copy_of(f) for f in placed.library.function}
    for function, nodes in bodies(placed):
        names = {function, original.get(function, "")}
        for node in nodes:
            if node.device and not any((name, node.name) in asked for name in names):
                raise RewriteError(
                    f"reading back: {op_path(function, node.name)!r} has device {node.device!r}, "
                    "which nobody asked for"
                )


def check_same_model(given: Any, placed: Any) -> None:
    """Raises RewriteError unless both compute the same: all is equal but devices, copies, order."""
    known = {f.signature.name: f for f in given.library.function}
    copies = {
        f.signature.name: copy_of(f)
        for f in placed.library.function
        if f.signature.name not in known
    }
    _same_nodes("", given.node, placed.node, copies)
    after = {f.signature.name: f for f in placed.library.function}
    missing = [name for name in known if name not in after]
    if missing or any(original not in known for original in copies.values()):
        raise RewriteError(
            f"comparing function libraries: {missing or sorted(copies)} are on one side only"
        )
    for name, function in after.items():
        _same_function(known[copies.get(name, name)], function, copies)
    if given.versions != placed.versions:
        raise RewriteError("comparing graphs: their versions differ")
    if given.debug_info != placed.debug_info:
        raise RewriteError("comparing graphs: their debug information differs")
    if list(given.library.registered_gradients) != list(placed.library.registered_gradients):
        raise RewriteError("comparing function libraries: their custom gradients differ")
    gradients = {(g.function_name, g.gradient_func) for g in given.library.gradient}
    if {
        (copies.get(g.function_name, g.function_name), g.gradient_func)
        for g in placed.library.gradient
    } != gradients:
        raise RewriteError("comparing function libraries: their gradient functions differ")


def _same_function(given: Any, placed: Any, copies: Mapping[str, str]) -> None:
    name = placed.signature.name
    _same_nodes(name, given.node_def, placed.node_def, copies)
    frames = []
    for function in (given, placed):
        frame = copy.deepcopy(function)
        del frame.node_def[:]
        if name in copies:  # the mark of a copy stands in its description
            frame.signature.name = name
            frame.signature.description = ""
        frames.append(frame)
    if frames[0] != frames[1]:
        raise RewriteError(f"comparing function {name!r}: its signature or attributes changed")


def _same_nodes(function: str, given: Any, placed: Any, copies: Mapping[str, str]) -> None:
    if len(given) != len(placed):
        raise RewriteError(
            f"comparing {function or 'the main graph'!r}: {len(given)} ops became {len(placed)}"
        )
    moved: Any = type(given[0])() if given else None
    for before, after in zip(given, placed, strict=True):
        if before == after:
            continue
        moved.CopyFrom(before)  # nothing but the device has changed of nearly all of them
        moved.device = after.device
        if moved == after:
            continue
        if _without_placement(before, copies) != _without_placement(after, copies):
            raise RewriteError(
                f"comparing {op_path(function, before.name)!r}: more than its device changed"
            )


def _without_placement(node: Any, copies: Mapping[str, str]) -> Any:
    result = copy.deepcopy(node)
    result.device = ""
    forget(result)
    rename_references(result, copies)
    return result
