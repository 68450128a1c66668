"""A batch that is refused changes nothing.

A step that takes any batch size asserts that there is an entry for each shard. What it makes of
the batch waits for that by way of the cuts. A counter of steps would count all the same, and a
generator draw, so that the same batch given to the unsplit step would train differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphs.building.op_outputs import op_definition
from graphs.graph_view import GraphView
from rewrite.split.local import has_no_effect


def have_effects_wait(
    graph_def: Any, refusal: str, library: Mapping[str, Any], is_bound: Callable[[Any], bool]
) -> None:
    """Gives each op with an effect a control edge from the assertion, unless it waits anyway.

    Args:
      graph_def: a split step, changed.
      refusal: its assertion that the batch has enough entries.
      library: {function: its definition}.
      is_bound: whether an op can't wait for one of the step: it lies in the frame of a loop.
    """
    view = GraphView(graph_def)
    settled = view.descendants([refusal]).union(view.ancestors([refusal]))
    for node in graph_def.node:
        if node.name not in settled and has_effect(node, library) and not is_bound(node):
            node.input.append(f"^{refusal}")


def has_effect(node: Any, library: Mapping[str, Any]) -> bool:
    """Whether something is another one after an op has run."""
    if node.op == "Assert" or _holds_state(node, library):
        return False
    if not has_no_effect(node, library):
        return True
    definition = op_definition(node.op, node.name)
    return any(each.is_ref for each in definition.input_arg) and any(
        each.is_ref for each in definition.output_arg
    )


def _holds_state(node: Any, library: Mapping[str, Any]) -> bool:
    """Whether an op only says where a state lies that outlives the step: a variable, a table.

    Some tables take what their keys may not be. Outside of the step's function, they could not
    wait for what is in it.
    """
    if not node.input:
        return True
    if node.op in library:
        return False
    definition = op_definition(node.op, node.name)
    is_shared = any(attr.name == "shared_name" for attr in definition.attr)
    return (
        is_shared and _has_handle(definition.output_arg) and not _has_handle(definition.input_arg)
    )


def _has_handle(arguments: Iterable[Any]) -> bool:
    from tensorflow.core.framework import types_pb2

    return any(each.is_ref or each.type == types_pb2.DT_RESOURCE for each in arguments)
