"""Finds how often loops run, where a counter and constants say so.

A loop is counted if its condition compares a counter, to which each iteration adds a constant, with
a constant limit. If the condition is a LogicalAnd of several parts, the least of their counts is
taken; it is an upper bound, because another part may end the loop earlier.
"""

import dataclasses
from collections.abc import Callable, Sequence

from graphs import op_types
from graphs.building.constant_values import ConstantValues, whole
from graphs.names import data_inputs, op_of, source_of
from graphs.protos import FunctionDef, Library, NodeDef, Nodes, constant

_LOWER, _LOWER_OR_EQUAL = "Less", "LessEqual"
_MIRRORED = {"Greater": _LOWER, "GreaterEqual": _LOWER_OR_EQUAL}
_MERGE = ("Merge", "RefMerge")


@dataclasses.dataclass(frozen=True)
class _Loop:
    """How the variables of a loop begin and change; both kinds of loop have this in common.

    Attributes:
      start: gives the value of a loop variable before the loop; None where it isn't fixed.
      step: gives what an iteration adds to it; 0 for what stays, None where it is no constant.
    """

    start: Callable[[str], int | None]
    step: Callable[[str], int | None]

    def count(self, counter: str, limit: str, is_inclusive: bool) -> int | None:
        """Iterations while counter < limit (<= if inclusive); None where it isn't known."""
        first, step, last = self.start(counter), self.step(counter), self.start(limit)
        if first is None or step is None or last is None or self.step(limit) != 0:
            return None
        distance = last - first + (1 if is_inclusive else 0)
        return max(-(-distance // step), 0) if step > 0 else None


class LoopBody:
    """The nodes and arguments of a functional loop's body or condition."""

    def __init__(self, function: FunctionDef):
        self.function = function
        self.arguments = {a.name: i for i, a in enumerate(function.signature.input_arg)}
        self.nodes = {node.name: node for node in function.node_def}

    def source(self, name: str) -> str:
        """The argument or node that a tensor comes from, through ops that pass it on."""
        return op_of(source_of(name, self.nodes, op_types.SAME))

    def result(self, index: int) -> str:
        """The argument or node that the function's result `index` comes from."""
        return self.source(self.function.ret[self.function.signature.output_arg[index].name])

    def constant(self, name: str) -> int | None:
        """The whole number that a node always makes; None where it makes none."""
        node = self.nodes.get(name)
        return whole(constant(node)) if node is not None and node.op == "Const" else None


def functional_trip_count(node: NodeDef, library: Library, values: ConstantValues) -> int | None:
    """Iterations of a While or StatelessWhile op; None where they can't be known.

    `values` learns the counters that come out of it: how often a gradient's loop runs.
    """
    functions = [library.get(node.attr[key].func.name) for key in ("cond", "body")]
    if None in functions:
        return None
    cond, body = LoopBody(functions[0]), LoopBody(functions[1])
    inputs = data_inputs(node)

    def start(name: str) -> int | None:
        if name in cond.arguments:
            return values.scalar(inputs[cond.arguments[name]])
        return cond.constant(name)

    def step(name: str) -> int | None:
        if name not in cond.arguments:
            return 0 if cond.constant(name) is not None else None
        return _functional_step(body, cond.arguments[name])

    count = _least(_comparisons(cond.result(0), cond.nodes, cond.source), _Loop(start, step))
    if count is None:
        return None
    for index, tensor in enumerate(inputs):
        first, each = values.scalar(tensor), _functional_step(body, index)
        if first is not None and each:
            values.learn(f"{node.name}:{index}", first + count * each)
    return count


def _functional_step(body: LoopBody, index: int) -> int | None:
    """What the body adds to its argument `index`; None where that is no constant."""
    name = body.result(index)
    if body.arguments.get(name) == index:
        return 0
    node = body.nodes.get(name)
    if node is None or node.op not in ("Add", "AddV2"):
        return None
    first, second = (body.source(source) for source in node.input[:2])
    for counter, step in ((first, second), (second, first)):
        if body.arguments.get(counter) == index:
            return body.constant(step)
    return None


def frame_trip_count(loop_cond: NodeDef, nodes: Nodes, values: ConstantValues) -> int | None:
    """Iterations of the v1 loop with this LoopCond; None where they can't be known."""

    def source(name: str) -> str:
        return op_of(source_of(name, nodes, op_types.SAME))

    def start(name: str) -> int | None:
        node = nodes[name]
        return values.scalar(node.input[0] if node.op in _MERGE else name)

    def step(name: str) -> int | None:
        node = nodes[name]
        if node.op not in _MERGE:
            return 0 if values.scalar(name) is not None else None
        following = nodes[op_of(node.input[1])]
        return _frame_step(nodes[source(following.input[0])], name, nodes, source, values)

    return _least(_comparisons(source(loop_cond.input[0]), nodes, source), _Loop(start, step))


def _frame_step(
    node: NodeDef, merge: str, nodes: Nodes, source: Callable[[str], str], values: ConstantValues
) -> int | None:
    """What an iteration adds to what `merge` hands to it; `node` makes the next value."""
    if _is_switch_of(node, merge, source):
        return 0
    if node.op not in ("Add", "AddV2"):
        return None
    first, second = (source(name) for name in node.input[:2])
    for counter, step in ((first, second), (second, first)):
        if _is_switch_of(nodes[counter], merge, source):
            return values.scalar(step)
    return None


def _is_switch_of(node: NodeDef, merge: str, source: Callable[[str], str]) -> bool:
    return node.op in ("Switch", "RefSwitch") and source(node.input[0]) == merge


_Comparison = tuple[str, str, bool]


def _comparisons(
    condition: str, nodes: Nodes, source: Callable[[str], str]
) -> Sequence[_Comparison]:
    """(counter, limit, whether inclusive) of each comparison that the condition wants to hold."""
    comparisons: list[_Comparison] = []
    pending = [condition]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        node = nodes.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        inputs = [source(name) for name in data_inputs(node)]
        if node.op == "LogicalAnd":
            pending += inputs
        elif node.op in (_LOWER, _LOWER_OR_EQUAL):
            comparisons.append((inputs[0], inputs[1], node.op == _LOWER_OR_EQUAL))
        elif node.op in _MIRRORED:
            comparisons.append((inputs[1], inputs[0], _MIRRORED[node.op] == _LOWER_OR_EQUAL))
    return comparisons


def _least(comparisons: Sequence[_Comparison], loop: _Loop) -> int | None:
    counts = [loop.count(*comparison) for comparison in comparisons]
    return min((count for count in counts if count is not None), default=None)
