"""Copies of ops that run a second time, just before what they make is read again.

A copy has its original's type, attributes and inputs, but that it may read other copies; so it
computes the same, bit for bit. It waits by a control edge for an op that runs shortly before its
reader: without that, TensorFlow would run it as soon as its inputs are there, and nothing would be
gained. A copy names its original in an attribute: so copies are told from the model's own ops, and
can be taken out again.

What waits on the host instead is read of a Snapshot there, which waits by the same kind of edge and
marks itself likewise. Grappler takes out an Identity that only goes from device to device.
"""

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from graphs.building.op_outputs import num_outputs, output_dtype, output_names
from graphs.function_library import bodies, library_of
from graphs.names import free_name
from graphs.protos import GraphDef, Library, NodeDef
from rewrite.call_graph import CallGraph
from rewrite.compare_graphs import same_content
from rewrite.memory.sums_in_turn import (
    AT_ONCE,
    IN_TURN,
    PAST,
    add_at_once,
    add_in_turn,
    added_in_turn,
)
from rewrite.order.order_edges import closing
from rewrite.pass_base import RewriteError, op_path
from rewrite.split.effects import NEVER_WRITE, has_no_effect

MARK = "_runs_again"
"""The attribute that names a copy's original; TensorFlow leaves names that begin so to others."""

KEPT = "_kept_output"
"""The attribute of a Snapshot that hands back what waits on the host: which output it is."""

AGAIN, ON_HOST = "again", "on_host"
"""The last part of a copy's name; those of a shard's op go on belonging to that shard."""

Place = tuple[str, str]
"""(function, node) as they stand in a GraphDef; "" is the main graph."""


@dataclasses.dataclass(frozen=True)
class NodeCopy:
    """An op that is to run once more, in its own body, or a Snapshot that hands back its output.

    Attributes:
      op: where it stands.
      reads: {node of the body, or "node:index" of one output: the number of what is read instead}.
      after: the node of the body that it waits for; "" for none.
      output: the index of the output that is handed back; -1: the op runs once more.
    """

    op: Place
    reads: Mapping[str, int]
    after: str = ""
    output: int = -1


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """What is computed again, and what is added in turn.

    Attributes:
      copies: [C], each reads only of those before it.
      reads: {op: {node of its body, or one output: the number of what it reads instead}}.
      sums: sums, and lists, whose terms are used one after another, before anything is copied.
    """

    copies: Sequence[NodeCopy] = ()
    reads: Mapping[Place, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    sums: Sequence[Place] = ()


def with_plan(graph_def: GraphDef, plan: MemoryPlan) -> GraphDef:
    """A copy of a graph in which these ops run again; RewriteError: the plan is not of it."""
    planned = copy.deepcopy(graph_def)
    body = dict(bodies(planned))
    for function in {place[0] for place in plan.sums}:
        add_in_turn(function, body[function], [name for f, name in plan.sums if f == function])
    nodes = {f: {node.name: node for node in of_body} for f, of_body in body.items()}
    library, names = library_of(planned), list[str]()

    def named(function: str, reads: Mapping[str, int]) -> dict[str, str]:
        result = {}
        for key, number in reads.items():
            node, colon, index = key.rpartition(":")
            if colon:
                key = _output_name(function, nodes[function][node], int(index), library)
            is_op = plan.copies[number].output < 0 or not function
            result[key] = names[number] if is_op else f"{names[number]}:output:0"
        return result

    for each in plan.copies:
        function, name = each.op
        if name not in nodes.get(function, {}):
            raise RewriteError(f"computing {op_path(*each.op)!r} again: the graph has no such op")
        original = nodes[function][name]
        if each.output < 0:
            again = copy.deepcopy(original)
        else:
            again = _handing_back(function, original, each.output, library)
        last = AGAIN if each.output < 0 else ON_HOST
        again.name = free_name(f"{name}/{last}", nodes[function])
        again.attr[MARK].s = name.encode()
        _read_copies(again, named(function, each.reads))
        if each.after:
            again.input.append(f"^{each.after}")
        body[function].append(again)
        nodes[function][again.name] = body[function][-1]
        names.append(again.name)
    for (function, name), reads in plan.reads.items():
        _read_copies(nodes[function][name], named(function, reads))
    pairs = zip(plan.copies, names, strict=True)
    waits = [(each.op[0], name, each.after) for each, name in pairs if each.after]
    # A call that is not opened waits for all that it is given: what waits for one in a circle may
    # run early, and then spares nothing.
    for function, name, after in list(closing(CallGraph(planned), waits)):
        nodes[function][name].input.remove(f"^{after}")
    return planned


def without_plan(graph_def: GraphDef, keeps_sums: bool = False) -> GraphDef:
    """The graph itself where it has no plan, else a copy without it, or without its copies."""
    if not has_plan(graph_def):
        return graph_def
    cleared = copy.deepcopy(graph_def)
    library = library_of(cleared)
    for function, nodes in bodies(cleared):
        original = _originals(function, nodes, library)
        kept = [node for node in nodes if MARK not in node.attr]
        for node in kept:
            _read_copies(node, original)
        if not keeps_sums:
            kept = add_at_once(kept)
        if len(kept) == len(nodes):
            continue
        kept = copy.deepcopy(kept)
        del nodes[:]
        nodes.extend(kept)
    return cleared


def has_plan(graph_def: GraphDef) -> bool:
    """Whether anything in a graph runs again, or is added in turn."""
    marks = {MARK, AT_ONCE, IN_TURN}
    return any(marks & set(node.attr) for _, nodes in bodies(graph_def) for node in nodes)


def check_plan(given: GraphDef, planned: GraphDef) -> int:
    """Proves that a graph computes what another one does, equal but for copies; returns how many.

    Raises:
      RewriteError: an op reads something else, a copy is none of its original, or may not be.
    """
    if not same_content(without_plan(given), without_plan(planned)):
        raise RewriteError("taking out what runs again: the rest is not the graph as it came")
    count, library = _check_sums(without_plan(planned, keeps_sums=True)), library_of(planned)
    for function, nodes in bodies(planned):
        own = {node.name: node for node in nodes}
        original = _originals(function, nodes, library)
        for name in [node.name for node in nodes if MARK in node.attr]:
            # A copy is its original but for name, device, mark and one op that it waits for.
            first, path = own.get(own[name].attr[MARK].s.decode()), op_path(function, name)
            if first is None or MARK in first.attr:
                raise RewriteError(f"checking {path!r}: what it runs again is not in the graph")
            found, expected = copy.deepcopy(own[name]), copy.deepcopy(first)
            found.name, found.device = first.name, first.device  # it may lie elsewhere
            del found.attr[MARK]
            _read_copies(found, original)
            if KEPT in own[name].attr:
                expected = _handing_back(function, first, own[name].attr[KEPT].i, library)
            _read_copies(expected, original)
            added = list(found.input)[len(expected.input) :]
            del found.input[len(expected.input) :]
            if not same_content(found, expected) or [n[0] for n in added] not in ([], ["^"]):
                raise RewriteError(f"checking {path!r}: it is not the same op as {first.name!r}")
            if not has_no_effect(own[name], library) or own[name].op in NEVER_WRITE:
                raise RewriteError(f"checking {path!r}: it may not run twice")
            count += 1
    return count


def _check_sums(changed: GraphDef) -> int:
    """Proves that sums are added in turn as they are written; returns how many ops do so."""
    nodes = [(function, node) for function, body in bodies(changed) for node in body]
    again = with_plan(without_plan(changed), MemoryPlan(sums=added_in_turn(changed)))
    written = {(f, node.name): node for f, body in bodies(again) for node in body}
    for function, node in nodes:
        if (expected := written.get((function, node.name))) is not None:
            expected.device = node.device  # where it lies is told beside
        if expected is None or not same_content(node, expected):
            raise RewriteError(f"checking {op_path(function, node.name)!r}: it adds other terms")
    return sum(IN_TURN in node.attr or PAST in node.attr for _, node in nodes)


def _originals(function: str, nodes: Iterable[NodeDef], library: Library) -> dict[str, str]:
    """{copy, or output that a Snapshot hands back: the op, or the output, that it stands for}."""
    marked = [node for node in nodes if MARK in node.attr]
    original = {n.name: n.attr[MARK].s.decode() for n in marked if KEPT not in n.attr}
    handed_back = {}
    for node in (each for each in marked if KEPT in each.attr and each.input):
        read = copy.deepcopy(node)
        _read_copies(read, original)
        handed_back[_output_name(function, node, 0, library)] = read.input[0]
    return original | handed_back


def _output_name(function: str, node: NodeDef, index: int, library: Library) -> str:
    """An output as an input names it, with its index also where that is 0."""
    if not function:
        return f"{node.name}:{index}"
    return f"{node.name}:{output_names(node, library)[index]}"


def _handing_back(function: str, node: NodeDef, output: int, library: Library) -> NodeDef:
    """A Snapshot of one of a node's outputs, which has the node's name and device so far."""
    if not 0 <= output < num_outputs(node, library):
        raise RewriteError(f"checking {op_path(function, node.name)!r}: it has no output {output}")
    read = _output_name(function, node, output, library)
    made = type(node)(name=node.name, op="Snapshot", device=node.device)
    made.input.append(read if function else read.removesuffix(":0"))
    made.attr["T"].type = output_dtype(node, library, output)
    made.attr[KEPT].i = output
    return made


def _read_copies(node: NodeDef, copies: Mapping[str, str]) -> None:
    """Makes a node read other outputs, or other nodes' of the same name; waiting stays."""
    for position, name in enumerate(node.input):
        op, colon, output = name.partition(":")
        if (whole := name if colon else f"{name}:0") in copies:
            node.input[position] = copies[whole]
        elif op in copies:  # a control input's name begins with ^
            node.input[position] = f"{copies[op]}{colon}{output}"
