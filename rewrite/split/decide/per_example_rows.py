"""Row numbers that count each batch entry's rows from a start of its own.

The gradient of a gather within batch entries (`tf.gather(..., batch_dims=1)`) numbers the rows of
all entries together: entry b's begin at b * block. No shard's rows lie in another one's then.
"""

from collections.abc import Callable

import numpy as np

from graphs.building.op_outputs import attr_of
from graphs.names import data_inputs, op_of, tensor_of
from graphs.protos import NodeDef, Nodes
from rewrite.split.shape_facts import Facts


def block_of_rows(facts: Facts, tensor: str, batch: int) -> int:
    """How many rows each batch entry has, where "op:i" names rows of its own entry; else 0.

    It does where it is b * block + x for entry b, and a gather within entries of `block` rows
    reads x as well, which would fail if x were outside.
    """
    added = _behind(facts, tensor, ("Reshape", "Identity"))
    node = facts.flat.nodes.get(added.partition(":")[0])
    if node is None or node.op not in ("Add", "AddV2"):
        return 0
    terms = [tensor_of(name) for name in node.input[:2]]
    for rows, starts in (terms, terms[::-1]):
        block = _step(facts, rows, starts, batch)
        if block and any(_gathers(facts, each, rows, block) for each in facts.flat.graph_def.node):
            return block
    return 0


def _behind(facts: Facts, tensor: str, passing: tuple[str, ...]) -> str:
    """The tensor before the ops that hand it on."""
    while (node := facts.flat.nodes.get(tensor.partition(":")[0])) and node.op in passing:
        tensor = tensor_of(node.input[0])
    return tensor


def _step(facts: Facts, rows: str, starts: str, batch: int) -> int:
    """The step of 0, step, 2 * step ..., one number for each entry along the first dimension."""
    shape, value = facts.shape(rows), facts.value(starts)
    if value is None or not shape or len(shape) != value.ndim or batch < 2:
        return 0
    if not shape[0] == value.shape[0] == value.size == batch:
        return 0
    numbers = value.reshape(-1)
    step = int(numbers[1])
    return step if np.array_equal(numbers, np.arange(batch) * step) else 0


def is_counted(nodes: Nodes, tensor: str, value: Callable[[str], np.ndarray | None]) -> bool:
    """Whether row numbers count the batch's entries at every size: they come from a Range.

    Numbers that a run looks up in a table may be 0, 1, 2 ... at the sizes that were tried only.

    Args:
      tensor: row numbers "op:i" that no run can change, or such numbers added to others.
      value: a function from "op:i" to what no run can change.
    """
    node = nodes.get(op_of(tensor))
    if node is None or node.op == "Range":
        return node is not None
    inputs = [tensor_of(name) for name in data_inputs(node)]
    if node.op in ("Reshape", "ExpandDims", "Identity", "Cast", "StridedSlice"):
        return is_counted(nodes, inputs[0], value)  # what leaves some out has fewer than the batch
    if node.op in ("Select", "SelectV2"):  # one of two, at every size
        which = value(inputs[0])
        return (
            which is not None
            and which.size == 1
            and is_counted(nodes, inputs[1 if which.all() else 2], value)
        )
    if node.op not in ("Mul", "Add", "AddV2"):
        return False
    known = {name: each for name in inputs if (each := value(name)) is not None}
    if node.op == "Mul":  # by the rows of each entry
        inputs = [name for name in known if known[name].size > 1]
        return len(known) == 2 and len(inputs) == 1 and is_counted(nodes, inputs[0], value)
    return len(known) == 1 and all(is_counted(nodes, name, value) for name in known)


def _gathers(facts: Facts, node: NodeDef, rows: str, block: int) -> bool:
    """Whether an op reads rows by these numbers, each in its own entry's `block`."""
    if node.op != "GatherV2" or attr_of(node, "batch_dims").i != 1:
        return False
    if node.name in facts.flat.unit_of_node:
        return False
    given, read, at = (tensor_of(name) for name in node.input[:3])
    shape, axis = facts.shape(given), facts.value(at)
    if shape is None or axis is None:
        return False
    same = _behind(facts, read, ("Identity",)) == _behind(facts, rows, ("Identity",))
    return same and shape[int(axis) % len(shape)] == block
