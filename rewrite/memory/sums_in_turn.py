"""Sums whose terms are used one after another, so that each is freed as soon as it is added.

TensorFlow's AddN holds all its terms at once, and Grappler joins AddN of AddN to one. AddV2 adds
two; Grappler leaves it alone where something waits for it. What AddN computes is kept bit for bit:
Grappler sorts its inputs by name, as of all ops that are commutative; it adds the first two to nine
of them from left to right, so many that eights are left; then the sum of each eight
(aggregate_ops.h).

A list, an IdentityN, likewise waits for the last of its values before it hands on any: Keras hands
all gradients to its optimizer so, whose updates could free them one by one. Who reads such a list
reads past it, what the list was given.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterator, MutableSequence, Sequence

from graphs import op_types
from graphs.function_library import bodies
from graphs.names import data_inputs, free_name, op_of, parse_input
from graphs.protos import GraphDef, NodeDef
from rewrite.pass_base import RewriteError, op_path

IN_TURN = "_added_in_turn"
"""The attribute of an op that adds two terms, or sums of some: the name of the sum."""

AT_ONCE = "_added_at_once"
"""The attribute of the sum, or list, itself: the inputs that it had."""

PAST = "_reads_past"
"""The attribute of an op that reads past a list: "POSITION INPUT" of each such input it had."""

LEAST_TERMS, LIST = 3, "IdentityN"


def _as_in_main_graph(name: str) -> str:
    """An input's name as it will be when calls are opened, but for what stands before all."""
    each = parse_input(name)
    return each.tensor.removesuffix(":0")


def _readers(nodes: Sequence[NodeDef]) -> Counter[str]:
    """{op: how often others read it, or wait for it}."""
    return Counter(op_of(name) for node in nodes for name in node.input)


def sums_of(nodes: Sequence[NodeDef]) -> Iterator[tuple[NodeDef, Sequence[str]]]:
    """The sums of a body that hold three terms or more at once, with their terms.

    A sum that nothing but another sum reads, or waits for, is a part of it: Grappler joins them.
    The terms are in Grappler's sequence.
    """
    readers, sums = _readers(nodes), {node.name: node for node in nodes if node.op == "AddN"}
    read = {op_of(name) for node in sums.values() for name in data_inputs(node)}
    parts = {
        name
        for name in read & sums.keys()
        if readers[name] == 1 and len(data_inputs(sums[name])) == len(sums[name].input)
    }
    for total in sums.values():
        terms, rest = list[str](), [] if total.name in parts else data_inputs(total)
        while rest:
            name = rest.pop()
            if op_of(name) in parts:
                rest += data_inputs(sums[op_of(name)])
            else:
                terms.append(name)
        if len(terms) >= LEAST_TERMS:
            yield total, sorted(terms, key=_as_in_main_graph)


def add_in_turn(function: str, body: MutableSequence[NodeDef], names: Collection[str]) -> None:
    """Changes sums and lists of a body; RewriteError: one is none of `sums_of`, nor a list.

    A term that nothing else reads is made when those before it are added: the sequence of names
    is another than that in which terms could be made. Grappler leaves alone what something waits
    for, too. Where nothing does, a Snapshot, which takes its input's buffer over, keeps two apart.
    """
    sums = {node.name: (node, terms) for node, terms in sums_of(body)}
    nodes, readers = {node.name: node for node in body}, _readers(body)
    lists = [nodes[name] for name in names if name in nodes and nodes[name].op == LIST]
    for name in names:
        if name in nodes and nodes[name].op == LIST:
            continue
        if name not in sums:
            raise RewriteError(f"adding {op_path(function, name)!r} in turn: it is no sum of many")
        total, terms = sums[name]
        made: list[NodeDef] = []
        make = functools.partial(_make, function, total, made, nodes)
        added: list[str] = []
        pairs = _pairs(terms)
        for pair in pairs:
            makers = [nodes.get(op_of(each)) for each in pair if isinstance(each, str)]
            waiting = [
                maker
                for maker in makers
                if added and maker is not None and readers[maker.name] == 1
                if maker.op not in op_types.CONTROL_FLOW
            ]
            for maker in waiting:
                maker.input.append(f"^{op_of(added[-1])}")
            if added and not waiting:
                added[-1] = make("Snapshot", "output", [added[-1]])
            inputs = [added[each] if isinstance(each, int) else each for each in pair]
            if len(added) + 1 < len(pairs):
                added.append(make("AddV2", "z", inputs))
        total.attr[AT_ONCE].list.s.extend(each.encode() for each in total.input)
        total.input[:] = [*inputs, *(each for each in total.input if each.startswith("^"))]
        total.attr["N"].i = 2
        body.extend(made)
    _read_past(body, lists)


def _read_past(body: Sequence[NodeDef], lists: Sequence[NodeDef]) -> None:
    given = {node.name: data_inputs(node) for node in lists}
    for node in body if given else ():
        for position, name in enumerate(data_inputs(node)):
            while op_of(name) in given:
                name = given[op_of(name)][parse_input(name).output]
            if name != node.input[position]:
                node.attr[PAST].list.s.append(f"{position} {node.input[position]}".encode())
                node.input[position] = name
    for node in lists:
        node.attr[AT_ONCE].list.s.extend(name.encode() for name in node.input)


def _pairs(terms: Sequence[str]) -> list[tuple[int | str, int | str]]:
    """What is added to what, as AddN adds: a number stands for what an earlier pair makes."""
    pairs: list[tuple[int | str, int | str]] = []

    def add(first: int | str, second: int | str) -> int | str:
        pairs.append((first, second))
        return len(pairs) - 1

    first = (len(terms) - 2) % 8 + 2
    blocks: list[Sequence[int | str]] = [terms[:first]]
    blocks += [terms[at : at + 8] for at in range(first, len(terms), 8)]
    functools.reduce(add, (functools.reduce(add, block) for block in blocks))
    return pairs


def _make(
    function: str,
    total: NodeDef,
    made: list[NodeDef],
    nodes: dict[str, NodeDef],
    op: str,
    output: str,
    inputs: Sequence[str],
) -> str:
    """Makes an op that stands for a part of a sum; returns its output as an input names it."""
    name = free_name(f"{total.name}/in_turn/{len(made)}", nodes)
    node = nodes[name] = type(total)(name=name, op=op, device=total.device, input=inputs)
    for key in {"T", "_class"} & set(total.attr):
        node.attr[key].CopyFrom(total.attr[key])
    node.attr[IN_TURN].s = total.name.encode()
    made.append(node)
    return f"{name}:{output}:0" if function else name


def add_at_once(body: Sequence[NodeDef]) -> list[NodeDef]:
    """The ops of a body without those that add in turn; all read again what they read."""
    added = {f"^{node.name}" for node in body if IN_TURN in node.attr}
    for node in body:
        for entry in node.attr[PAST].list.s if PAST in node.attr else ():
            position, _, name = entry.decode(errors="replace").partition(" ")
            if position.isdecimal() and int(position) < len(node.input):  # else no word of ours
                node.input[int(position)] = name
        if PAST in node.attr:
            del node.attr[PAST]
        if not added.isdisjoint(node.input):
            node.input[:] = [name for name in node.input if name not in added]
        if AT_ONCE in node.attr:
            if node.op != LIST:
                node.input[:] = [each.decode() for each in node.attr[AT_ONCE].list.s]
                node.attr["N"].i = len(data_inputs(node))
            del node.attr[AT_ONCE]
    return [node for node in body if IN_TURN not in node.attr]


def added_in_turn(graph_def: GraphDef, lists: bool | None = None) -> list[tuple[str, str]]:
    """(function, node) of the sums and lists of a graph whose terms are used in turn.

    Args:
      lists: whether lists alone count, or sums alone; None for both.
    """
    return [
        (f, node.name)
        for f, body in bodies(graph_def)
        for node in body
        if AT_ONCE in node.attr and lists in (None, node.op == LIST)
    ]
