"""Finds the loops and the conditionals of TensorFlow 1 in the flat graph of a run.

The nodes between Enter and Exit of a frame are a loop; those between Switch and Merge are a
conditional.
"""

from collections.abc import Mapping, Sequence

from graphs import op_types
from graphs.by_key import by_key
from graphs.names import op_of
from graphs.protos import NodeDef


def frame_units(nodes: Sequence[NodeDef]) -> dict[str, str]:
    """{node: unit} for all nodes in v1 loops; a unit has the name of its outermost frame.

    A node is in the frame of its inputs. Enter opens a frame inside that one, and what an Exit
    makes is in the frame around it. Nested frames belong to the outermost one. A loop is placed as
    a whole, because the tensors of an iteration never leave it.
    """
    stack_of_node = frame_stacks(nodes)
    # At inner frames, too, the walk begins: they are given the outermost frame here.
    outermost = {
        frame: stack[0] for stack in stack_of_node.values() for frame in stack if len(stack) > 1
    }
    first = {node.name: stack_of_node[node.name][0] for node in nodes if node.name in stack_of_node}
    return {name: outermost.get(frame, frame) for name, frame in first.items()}


def frame_stacks(nodes: Sequence[NodeDef]) -> dict[str, tuple[str, ...]]:
    """{node: the frames that it is in, the outermost first} for all nodes in v1 loops."""
    if not any(node.op in op_types.ENTER for node in nodes):
        return {}
    users = by_key((op_of(source), node) for node in nodes for source in node.input)
    stack_of_node: dict[str, tuple[str, ...]] = {}
    pending: list[tuple[NodeDef, tuple[str, ...]]] = [
        (node, ()) for node in nodes if node.op in op_types.ENTER
    ]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while pending:
        node, outer = pending.pop()
        if (node.name, outer) in seen:
            continue
        seen.add((node.name, outer))
        if node.op in op_types.ENTER:
            frame = node.attr["frame_name"].s.decode(errors="replace")
            inside = outer if outer and outer[-1] == frame else (*outer, frame)
        else:
            inside = outer
        if len(inside) > len(stack_of_node.get(node.name, ())):
            stack_of_node[node.name] = inside
        after = inside[:-1] if node.op in op_types.EXIT else inside
        if after:
            pending.extend((user, after) for user in users.get(node.name, ()))
    return stack_of_node


def depth_in_conditionals(
    nodes: Sequence[NodeDef], unit_of_node: Mapping[str, str]
) -> dict[str, int]:
    """{node: in how many conditionals of Switch and Merge it stands}, so that it may be dead.

    Args:
      nodes: in a topological order.
      unit_of_node: those of loops, whose own Switch and Merge don't count.
    """
    depth: dict[str, int] = {}
    for node in nodes:
        inside = max((depth.get(op_of(name), 0) for name in node.input), default=0)
        if node.name not in unit_of_node:
            inside += node.op in op_types.SWITCHES
            inside -= node.op in op_types.MERGES and inside > 0
        depth[node.name] = inside
    return depth


def loop_of(name: str, unit_of_node: Mapping[str, str]) -> str:
    """The unit of the loop of TensorFlow 1 that a node is in; empty for all others."""
    unit = unit_of_node.get(name, name)
    return "" if unit == name else unit
