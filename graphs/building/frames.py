"""TF1 loops: the nodes between Enter and Exit of a frame belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ENTER_OPS = frozenset({"Enter", "RefEnter"})
EXIT_OPS = frozenset({"Exit", "RefExit"})


def frame_units(nodes: Sequence[Any]) -> dict[str, str]:
    """{node: unit} for all nodes in v1 loops; a unit is named by its outermost frame.

    A node is in the frame of its inputs; Enter opens a frame inside it, and what an Exit makes
    is in the frame around. Nested frames belong to the outermost one: it can't be placed
    otherwise, since an iteration's tensors never leave it.
    """
    stack_of_node = frame_stacks(nodes)
    return _merged_nested(nodes, {n: s[0] for n, s in stack_of_node.items()}, stack_of_node)


def frame_stacks(nodes: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """{node: frames that it is in, the outermost first} for all nodes in v1 loops."""
    if not any(node.op in ENTER_OPS for node in nodes):
        return {}
    users: dict[str, list[Any]] = {}
    for node in nodes:
        for source in node.input:
            users.setdefault(source.lstrip("^").partition(":")[0], []).append(node)
    stack_of_node: dict[str, tuple[str, ...]] = {}
    pending: list[tuple[Any, tuple[str, ...]]] = [
        (node, ()) for node in nodes if node.op in ENTER_OPS
    ]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while pending:
        node, outer = pending.pop()
        if (node.name, outer) in seen:
            continue
        seen.add((node.name, outer))
        if node.op in ENTER_OPS:
            frame = node.attr["frame_name"].s.decode(errors="replace")
            inside = outer if outer and outer[-1] == frame else (*outer, frame)
        else:
            inside = outer
        if len(inside) > len(stack_of_node.get(node.name, ())):
            stack_of_node[node.name] = inside
        after = inside[:-1] if node.op in EXIT_OPS else inside
        if after:
            pending.extend((user, after) for user in users.get(node.name, ()))
    return stack_of_node


def _merged_nested(
    nodes: Sequence[Any], unit_of_node: dict[str, str], stack_of_node: dict[str, tuple[str, ...]]
) -> dict[str, str]:
    """Renames units of inner frames, which were also entered as if outermost, to the outer one."""
    outermost = {
        frame: stack[0] for stack in stack_of_node.values() for frame in stack if len(stack) > 1
    }
    return {
        node.name: outermost.get(unit_of_node[node.name], unit_of_node[node.name])
        for node in nodes
        if node.name in unit_of_node
    }
