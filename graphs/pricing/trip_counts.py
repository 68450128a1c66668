"""How often loops run, where a counter and constants say so.

A loop is counted if its condition, or one part of a LogicalAnd, compares a counter that each
iteration changes by a constant with a constant limit. The least such count is taken: another
part may end the loop earlier, so that it is an upper bound then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphs.names import parse_input
from graphs.pricing.constant_values import ConstantValues, constant, whole

_LOWER, _LOWER_OR_EQUAL = "Less", "LessEqual"
_MIRRORED = {"Greater": _LOWER, "GreaterEqual": _LOWER_OR_EQUAL}
_FOLLOWED = frozenset({"Identity", "StopGradient", "PreventGradient"})
_DEEPEST = 100


@dataclasses.dataclass(frozen=True)
class _Loop:
    """What both kinds of loop have in common.

    Attributes:
      start: of a loop variable before the loop; None where it isn't fixed.
      step: what an iteration adds to it; None where it is no constant; 0 for what stays.
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


class _Body:
    """A function's nodes and arguments; names are "arg", "node:output:i" or "node"."""

    def __init__(self, function: Any):
        self.function = function
        self.arguments = {a.name: i for i, a in enumerate(function.signature.input_arg)}
        self.nodes = {node.name: node for node in function.node_def}

    def source(self, name: str) -> str:
        """The argument or node that a tensor comes from, through ops that pass it on."""
        for _ in range(_DEEPEST):
            name = name.split(":")[0]
            node = self.nodes.get(name)
            if name in self.arguments or node is None or node.op not in _FOLLOWED:
                return name
            name = node.input[0]
        return name

    def result(self, index: int) -> str:
        """Where the result of that index comes from."""
        return self.source(self.function.ret[self.function.signature.output_arg[index].name])

    def constant(self, name: str) -> int | None:
        node = self.nodes.get(name)
        return whole(constant(node)) if node is not None and node.op == "Const" else None


def functional_trip_count(
    node: Any, library: Mapping[str, Any], values: ConstantValues
) -> int | None:
    """Iterations of a While or StatelessWhile op; None where they can't be known."""
    functions = [library.get(node.attr[key].func.name) for key in ("cond", "body")]
    if None in functions:
        return None
    cond, body = _Body(functions[0]), _Body(functions[1])
    inputs = [name for name in node.input if not name.startswith("^")]

    def start(name: str) -> int | None:
        if name in cond.arguments:
            return values.scalar(inputs[cond.arguments[name]])
        return cond.constant(name)

    def step(name: str) -> int | None:
        if name not in cond.arguments:
            return 0 if cond.constant(name) is not None else None
        return _functional_step(body, cond.arguments[name])

    return _least(_comparisons(cond.result(0), cond.nodes, cond.source), _Loop(start, step))


def _functional_step(body: _Body, index: int) -> int | None:
    """What the body adds to its argument of that index."""
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


def frame_trip_count(
    loop_cond: Any, nodes: Mapping[str, Any], values: ConstantValues
) -> int | None:
    """Iterations of the v1 loop with this LoopCond; None where they can't be known."""

    def source(name: str) -> str:
        for _ in range(_DEEPEST):
            name = parse_input(name).op
            if nodes[name].op not in _FOLLOWED:
                return name
            name = nodes[name].input[0]
        return name

    def start(name: str) -> int | None:
        node = nodes[name]
        return values.scalar(node.input[0] if node.op in ("Merge", "RefMerge") else name)

    def step(name: str) -> int | None:
        node = nodes[name]
        if node.op not in ("Merge", "RefMerge"):
            return 0 if values.scalar(name) is not None else None
        following = nodes[parse_input(node.input[1]).op]
        return _frame_step(nodes[source(following.input[0])], name, nodes, source, values)

    return _least(_comparisons(source(loop_cond.input[0]), nodes, source), _Loop(start, step))


def _frame_step(
    node: Any,
    merge: str,
    nodes: Mapping[str, Any],
    source: Callable[[str], str],
    values: ConstantValues,
) -> int | None:
    """What an iteration adds to what a Merge hands out; `node` makes its next value."""
    if _is_switch_of(node, merge, source):
        return 0
    if node.op not in ("Add", "AddV2"):
        return None
    first, second = (source(name) for name in node.input[:2])
    for counter, step in ((first, second), (second, first)):
        if _is_switch_of(nodes[counter], merge, source):
            return values.scalar(step)
    return None


def _is_switch_of(node: Any, merge: str, source: Callable[[str], str]) -> bool:
    return node.op in ("Switch", "RefSwitch") and source(node.input[0]) == merge


_Comparison = tuple[str, str, bool]


def _comparisons(
    condition: str, nodes: Mapping[str, Any], source: Callable[[str], str]
) -> Sequence[_Comparison]:
    """(counter, limit, whether inclusive) of each comparison that has to hold."""
    found: list[_Comparison] = []
    pending = [condition]
    while pending and len(found) < _DEEPEST:
        node = nodes.get(pending.pop())
        if node is None:
            continue
        inputs = [source(name) for name in node.input if not name.startswith("^")]
        if node.op == "LogicalAnd":
            pending += inputs
        elif node.op in (_LOWER, _LOWER_OR_EQUAL):
            found.append((inputs[0], inputs[1], node.op == _LOWER_OR_EQUAL))
        elif node.op in _MIRRORED:
            found.append((inputs[1], inputs[0], _MIRRORED[node.op] == _LOWER_OR_EQUAL))
    return found


def _least(comparisons: Sequence[_Comparison], loop: _Loop) -> int | None:
    counts = [loop.count(*comparison) for comparison in comparisons]
    return min((count for count in counts if count is not None), default=None)
