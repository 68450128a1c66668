"""Memory that the sizes of outputs do not say: what lists hold, what kernels allocate and copy.

Lists of tensors: a handle's size does not say what they hold; loops fill and hand them on. The
sizes of kernels are those of TensorFlow's own for one thread, as a worker has it.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.constant_values import ConstantValues
from graphs.building.known_tensors import Held
from graphs.building.node_outputs import NodeOutputs
from graphs.building.shapes import TensorProperties
from graphs.building.trip_counts import LoopBody, functional_trip_count
from graphs.by_key import by_key
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input, source_of, with_index
from graphs.op_graph import LongArray
from graphs.protos import FunctionDef, NodeDef, Shape

_NEW = frozenset({"TensorListReserve", "EmptyTensorList"})
_ITEM = {"TensorListSetItem": 2, "TensorListPushBack": 1}
_TAKE = frozenset({"TensorListGetItem", "TensorListPopBack"})
# What they give is held anyway: by a variable, another list, or the loop's function.
_HELD = _TAKE | {"ReadVariableOp", "Const"}


def fill_lists(
    flat: FlatGraph, properties: TensorProperties, outputs: NodeOutputs, shares: LongArray
) -> LongArray:
    """Finds what lists hold, and which of them are the lists that a loop was given.

    A list that a loop fills counts in full from the loop's start on, and what is in several lists
    once. Where a size or how often the loop runs isn't known, the elements count as nothing.

    Args:
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
            given_of = [parse_input(name) for name in data_inputs(node)]
            holder: dict[str, int] = {}  # {what is put into lists: the first of the longest}
            for position, (name, given) in enumerate(zip(data_inputs(node), given_of, strict=True)):
                if properties.dtype(name) != "variant":
                    continue
                made, output = f"{node.name}:{position}", first[node.name] + position
                item = put.get(position)
                source = flat.nodes[op_of(source_of(name, flat.nodes, op_types.SAME))]
                if isinstance(item, int):  # elements of a list that the loop was given
                    given = given_of[item]
                if item is None or isinstance(item, int) or source.op not in _NEW:
                    shares[output] = first[given.op] + given.output
                    continue
                size = stacked.get(made) or _bytes(properties.known_of(made).held, count)
                if item in holder and size <= held[holder[item]]:
                    shares[output] = holder[item]
                elif item:
                    holder[item], held[output] = output, size
    return held


class LoopSums(NamedTuple):
    """What a loop sums up, such as gradients of weights.

    TensorFlow begins a loop as soon as some of its inputs are there. What an iteration adds to one
    that comes late waits, and so it does in as many iterations as may run at a time.

    Attributes:
      loop: its name.
      sums: {input of it that is added to: bytes that wait at most}.
      lists: inputs of it that are lists, of which iterations take out elements.
      share: of all iterations, those that may run at a time.
    """

    loop: str
    sums: Mapping[str, int]
    lists: Sequence[str]
    share: float


def loop_sums(flat: FlatGraph, properties: TensorProperties) -> Iterator[LoopSums]:
    """Of the functional loops of which is known how often they run."""
    values = ConstantValues(flat.nodes, properties)
    for node in flat.graph_def.node:
        count = (
            functional_trip_count(node, flat.library, values) if node.op in op_types.LOOPS else 0
        )
        at_a_time = min(count or 0, node.attr["parallel_iterations"].i)
        if count and at_a_time:
            given, size = data_inputs(node), properties.bytes_of[node.name]
            summed, taken = _summed(flat.library[node.attr["body"].func.name])
            sums = {given[i]: at_a_time * size[i] for i in summed}
            yield LoopSums(node.name, sums, [given[i] for i in taken], at_a_time / count)


def _summed(function: FunctionDef) -> tuple[list[int], list[int]]:
    """Arguments of a loop's body that it adds to, and lists that it takes elements out of."""
    body = LoopBody(function)
    position = body.arguments
    lists = [body.source(n.input[0]) for n in function.node_def if n.op == "TensorListPopBack"]
    added = [body.nodes.get(body.result(i)) for i in range(len(function.signature.output_arg))]
    summed = [
        number
        for number, node in enumerate(added)
        if node is not None
        and node.op in ("Add", "AddV2", "AddN")
        and number in [position.get(body.source(name)) for name in node.input]
    ]
    return summed, [position[name] for name in lists if name in position]


def _bytes(held: Held | None, count: int) -> int:
    """Of a list's elements, `count` where its length isn't known; 0 where they aren't known."""
    for shape in () if held is None else (held.element, held.declared):
        if held is not None and shape is not None and min(shape, default=0) >= 0:
            length = held.length if held.length >= 0 else count
            return length * math.prod(shape) * int(tf.as_dtype(held.dtype).size)
    return 0


def _put(body: FunctionDef) -> dict[int, str | int]:
    """{result of a loop's body: the tensor that an iteration puts into that list}.

    An element of a list that the loop is given is that argument's number. The tensor is "" where
    something else holds it anyway.
    """
    nodes = {node.name: node for node in body.node_def}
    position = {argument.name: i for i, argument in enumerate(body.signature.input_arg)}
    results = [body.ret[each.name] for each in body.signature.output_arg]
    found: dict[int, str | int] = {}
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
        held = "" if made is None or made.op in _HELD else item
        found[number] = (
            position.get(op_of(made.input[0]), held) if made and made.op in _TAKE else held
        )
    return found


# conv_grad_filter_ops.cc and conv_grad_input_ops.h have these for the sizes of caches.
_L2_BYTES, _L3_BYTES = 256 << 10, 30 << 20

_SPARSE_ACCESS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply")
_DENSE_UPDATE = ("ResourceApply", "AssignAddVariableOp", "AssignSubVariableOp")


def _has_onednn() -> bool:
    from tensorflow.python.util import _pywrap_util_port

    # A worker asks the environment when it starts; this process has asked long ago.
    is_off = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "") in ("0", "false")
    return not is_off and bool(_pywrap_util_port.IsMklEnabled())


def workspace_bytes(node: NodeDef, properties: TensorProperties) -> int:
    """What a node's kernel takes while it runs; 0 where a size that it needs is not known.

    Where TensorFlow runs oneDNN's kernels, which it does on newer processors, they take none.
    """
    if _has_onednn():
        return 0
    if node.op == "Conv2DBackpropFilter":  # Conv3D's takes none
        return _patches(properties.shape_of[node.name][0], node, properties, every_shard=True)
    if node.op in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):
        return _patches(properties.shape(node.input[1]), node, properties, every_shard=False)
    if node.op == "MaxPoolGrad":  # int64: where each maximum was
        return 8 * properties.num_bytes(node.input[1]) // _width(node, properties)
    return 0


def _patches(kernel: Shape, node: NodeDef, properties: TensorProperties, every_shard: bool) -> int:
    """Of a convolution's gradient: patches of as many images as fill the cache, however few are."""
    gradient = properties.shape(node.input[2])
    if kernel is None or gradient is None or min(*kernel, *gradient) <= 0:
        return 0
    if len(gradient) == 5 and gradient[0] > 1:
        return 0  # of several volumes TensorFlow unfolds none, as far as was seen
    *window, num_channels = kernel
    pixels, patch = math.prod(gradient[1:-1]), math.prod(window)
    width = _width(node, properties)
    one_image = pixels * patch + pixels * num_channels + patch * num_channels
    several = every_shard or (gradient[0] > 1 and one_image < _L2_BYTES // width)
    return width * pixels * patch * (-(-_L3_BYTES // width // one_image) if several else 1)


def _width(node: NodeDef, properties: TensorProperties) -> int:
    return max(int(tf.as_dtype(properties.dtype_of[node.name][0]).size), 1)


def copied_variables(nodes: Sequence[NodeDef]) -> tuple[set[int], dict[int, str]]:
    """What is copied of variables of which a step also reads or writes single rows.

    TensorFlow then lets no read share the variable's buffer, and updates a copy of it as a whole.

    Returns:
      Indices of the nodes that read such a variable; {node that updates it: VarHandleOps}.
    """
    reads, updates, in_rows = _accesses(nodes)
    return (
        {index for index, variable in reads if variable in in_rows},
        {index: variable for index, variable in updates if variable in in_rows},
    )


def copied_on_write(nodes: Sequence[NodeDef]) -> list[tuple[int, list[int], int]]:
    """(update, reads, variable) of all other variables, as indices of nodes.

    An update copies the variable where what one of the reads gave is still needed.
    """
    index_of = {node.name: index for index, node in enumerate(nodes)}
    reads, updates, in_rows = _accesses(nodes)
    reads_of = by_key((variable, index) for index, variable in reads)
    return [
        (index, reads_of[variable], index_of[variable])
        for index, variable in updates
        if variable in reads_of and variable not in in_rows
    ]


def _accesses(
    nodes: Sequence[NodeDef],
) -> tuple[list[tuple[int, str]], list[tuple[int, str]], set[str]]:
    """(node, variable) of reads and of dense updates; the variables accessed in rows."""
    of_name = {node.name: node for node in nodes}
    reads: list[tuple[int, str]] = []
    updates: list[tuple[int, str]] = []
    in_rows = set()
    for index, node in enumerate(nodes):
        is_update = node.op.startswith(_DENSE_UPDATE)
        if node.op != "ReadVariableOp" and not is_update and not node.op.startswith(_SPARSE_ACCESS):
            continue
        variable = op_of(source_of(node.input[0], of_name, op_types.HANDLE))
        if node.op == "ReadVariableOp":
            reads.append((index, variable))
        elif is_update:
            updates.append((index, variable))
        else:
            in_rows.add(variable)
    return reads, updates, in_rows
