"""A batch that is refused changes nothing.

A step that takes any batch size asserts that there is an entry for each shard. What it makes of
the batch waits for that by way of the cuts. A counter of steps would count all the same, and a
generator draw, so that the same batch given to the unsplit step would train differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    if node.op == "Assert" or not node.input:  # without inputs: what holds a state
        return False
    if not has_no_effect(node, library):
        return True
    definition = op_definition(node.op, node.name)
    return any(each.is_ref for each in definition.input_arg) and any(
        each.is_ref for each in definition.output_arg
    )
