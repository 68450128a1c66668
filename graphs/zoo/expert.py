"""Places a benchmark graph as an expert would, as the papers describe it.

Every op of a zoo graph carries two integer attributes: `_tfplace_expert_part`, the part of the
model that it belongs to (0..P-1, or -1 for the CPU), and `_tfplace_expert_parts`, P. Part p goes
to GPU p * num_gpus // P, so that neighbouring parts share a GPU when there are fewer GPUs than
parts. The model's builder chooses the parts (tfplace/docs/published.md, "Experts' placements").
Gradient ops belong with their forward op, updates and slots with their variable.
"""

import re
from collections.abc import Iterable

import graphs.late_tensorflow as tf
from graphs.names import op_of
from graphs.protos import Graph, GraphDef, Operation

PART_ATTRIBUTE = "_tfplace_expert_part"
PARTS_ATTRIBUTE = "_tfplace_expert_parts"
CPU = -1

# tf.gradients calls the ops of X's gradient gradients/X_grad/… (or X_grad_1/… if that is taken),
# and the running sum of the gradients that reach X gradients/X_gradient_sum/….
_GRADIENT_SCOPE = re.compile(r"^gradients/(.+?)(?:_gradient_sum|_grad)(?:_\d+)?/")


def expert_placement(
    graph_def: GraphDef, op_names: Iterable[str], num_gpus: int
) -> dict[str, int | None] | None:
    """The expert's device of each op.

    Args:
      graph_def: a GraphDef whose nodes carry the part attributes.
      op_names: ops to place; one that carries no part (a loader added it) follows its first
        input that has one, else the CPU.
      num_gpus: how many GPUs there are, at least 1.

    Returns:
      {op: GPU index, or None for the CPU}; None when no node carries a part, which is so for
      every graph that is not of the zoo.

    Raises:
      ValueError: there is no GPU, or an op is not in the graph.
    """
    if num_gpus < 1:
        raise ValueError(f"an expert places on at least 1 GPU, got {num_gpus}")
    nodes = {node.name: node for node in graph_def.node}
    device_of_op: dict[str, int | None] = {}
    for node in graph_def.node:
        if PART_ATTRIBUTE in node.attr:
            part, parts = node.attr[PART_ATTRIBUTE].i, node.attr[PARTS_ATTRIBUTE].i
            device_of_op[node.name] = None if part == CPU else part * num_gpus // parts
    if not device_of_op:
        return None
    op_names = list(op_names)
    unknown = [name for name in op_names if name not in nodes]
    if unknown:
        raise ValueError(
            f"placing {len(op_names)} ops as an expert: no op {unknown[0]!r} in the graph"
        )
    known = dict(device_of_op)
    for name in op_names:
        # It follows the first of its inputs, and of theirs, that carries a part.
        follows, way = name, dict[str, None]()
        while follows in nodes and follows not in known and follows not in way:
            way[follows] = None
            producers = [op_of(tensor) for tensor in nodes[follows].input]
            placed = (producer for producer in producers if producer in device_of_op)
            follows = next(placed, producers[0] if producers else "")
        known.update(dict.fromkeys(way, known.get(follows)))
    return {name: known.get(name) for name in op_names}


def spread_parts(graph: Graph, num_parts: int) -> None:
    """Writes the part attributes on every op of a tf.Graph whose forward ops carry theirs.

    An op that carries none takes the part of the forward op whose gradient it is; else of the op
    that it is colocated with; else of its first data input that is not on the CPU; else of its
    first consumer that is not on the CPU; else it is on the CPU.
    """
    ops = graph.get_operations()
    part_of_op: dict[str, int] = {}
    for op in ops:
        node = op.node_def
        part = node.attr[PART_ATTRIBUTE].i if PART_ATTRIBUTE in node.attr else None
        if part is None:
            part = _leading_part(op, part_of_op)
        if part is not None:
            part_of_op[op.name] = part
    for op in reversed(ops):
        if op.name not in part_of_op:
            consumers = (user for tensor in op.outputs for user in tensor.consumers())
            parts = (part_of_op.get(user.name, CPU) for user in consumers)
            part_of_op[op.name] = next((part for part in parts if part != CPU), CPU)
    for op in ops:
        op._set_attr(PART_ATTRIBUTE, tf.compat.v1.AttrValue(i=part_of_op[op.name]))
        op._set_attr(PARTS_ATTRIBUTE, tf.compat.v1.AttrValue(i=num_parts))


def _leading_part(op: Operation, part_of_op: dict[str, int]) -> int | None:
    match = _GRADIENT_SCOPE.match(op.name)
    if match and match.group(1) in part_of_op:
        return part_of_op[match.group(1)]
    for group in op.colocation_groups():
        leader = group.decode().removeprefix("loc:@")
        if leader in part_of_op and leader != op.name:
            return part_of_op[leader]
    inputs = [part_of_op.get(tensor.op.name, CPU) for tensor in op.inputs]
    return next((part for part in inputs if part != CPU), None)
