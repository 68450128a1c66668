"""What lists of tensors hold, which a handle's size does not say: loops fill and hand them on."""

import math
from typing import Any

import numpy as np

from graphs import op_types
from graphs.building.constant_values import ConstantValues
from graphs.building.known_tensors import Held
from graphs.building.node_outputs import NodeOutputs
from graphs.building.shapes import TensorProperties
from graphs.building.trip_counts import functional_trip_count
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input, source_of, with_index
from graphs.op_graph import LongArray

_NEW = frozenset({"TensorListReserve", "EmptyTensorList"})
_ITEM = {"TensorListSetItem": 2, "TensorListPushBack": 1}
# What they give is held anyway: by a variable, another list, or the loop's function.
_HELD = frozenset({"ReadVariableOp", "TensorListGetItem", "TensorListPopBack", "Const"})


def fill_lists(
    flat: FlatGraph, properties: TensorProperties, outputs: NodeOutputs, shares: LongArray
) -> LongArray:
    """Finds what lists hold, and which of them are the lists that a loop was given.

    A list that a loop fills counts in full from the loop's start on, and what is in several lists
    once. Where a size or how often the loop runs isn't known, the elements count as nothing.

    Args:
      flat: the graph.
      properties, outputs: of its nodes.
      shares: i8[O] as OpGraph.tensor_shares, of outputs; it is changed.

    Returns:
      i8[O] bytes of elements that no other output has.
    """
    held = np.zeros(len(shares), dtype=np.int64)
    nodes, values = flat.graph_def.node, ConstantValues(flat.nodes, properties)
    first = {node.name: int(outputs.first[index]) for index, node in enumerate(nodes)}
    stacked = {
        with_index(node.input[0]): properties.bytes_of[node.name][0]
        for node in nodes
        if node.op == "TensorListStack"
    }
    for node in nodes:
        if node.op == "TensorListFromTensor":
            held[first[node.name]] = properties.num_bytes(node.input[0])
        elif node.op == "ZerosLike" and properties.dtype_of[node.name] == ["variant"]:
            held[first[node.name]] = _bytes(properties.known_of(node.name).held, 0)
        elif node.op in op_types.LOOPS and "variant" in properties.dtype_of.get(node.name, ()):
            count = functional_trip_count(node, flat.library, values) or 0
            put = _put(flat.library[node.attr["body"].func.name])
            holder: dict[str, int] = {}  # {what is put into lists: the first of them}
            for position, name in enumerate(data_inputs(node)):
                if properties.dtype(name) != "variant":
                    continue
                given, output = parse_input(name), first[node.name] + position
                made, item = f"{node.name}:{position}", put.get(position)
                source = flat.nodes[op_of(source_of(name, flat.nodes, op_types.SAME))]
                if item is None or source.op not in _NEW:
                    shares[output] = first[given.op] + given.output
                elif item in holder:
                    shares[output] = holder[item]
                elif item:
                    holder[item] = output
                    held[output] = stacked.get(made) or _bytes(
                        properties.known_of(made).held, count
                    )
    return held


def _bytes(held: Held | None, count: int) -> int:
    """Of a list's elements, `count` where its length isn't known; 0 where they aren't known."""
    import tensorflow as tf

    shapes = () if held is None else (held.element, held.declared)
    for shape in shapes:
        if held is not None and shape is not None and min(shape, default=0) >= 0:
            length = held.length if held.length >= 0 else count
            return length * math.prod(shape) * int(tf.as_dtype(held.dtype).size)
    return 0


def _put(body: Any) -> dict[int, str]:
    """{result of a loop's body: the tensor that an iteration puts into that list}.

    The tensor is "" where something else holds it anyway.
    """
    nodes = {node.name: node for node in body.node_def}
    position = {argument.name: i for i, argument in enumerate(body.signature.input_arg)}
    results = [body.ret[each.name] for each in body.signature.output_arg]
    found = {}
    for number, result in enumerate(results):
        node = nodes.get(op_of(source_of(result, nodes, op_types.SAME)))
        if node is None or node.op not in _ITEM:
            continue
        item = node.input[_ITEM[node.op]]
        for _ in results:  # what an iteration is given is what the one before it made
            item = source_of(item, nodes, op_types.ALIASES)
            if op_of(item) not in position:
                break
            item = results[position[op_of(item)]]
        made = nodes.get(op_of(item))
        found[number] = "" if made is None or made.op in _HELD else item
    return found
