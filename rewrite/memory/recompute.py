"""Copies of ops that run a second time, just before what they make is read again.

A copy has its original's type, attributes and inputs, but that it may read other copies; so it
computes the same, bit for bit. It waits by a control edge for an op that runs shortly before its
reader: without that, TensorFlow would run it as soon as its inputs are there, and nothing would be
gained. A copy names its original in an attribute: so copies are told from the model's own ops, and
can be taken out again.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence

from graphs.function_library import bodies, library_of
from graphs.names import free_name
from graphs.protos import GraphDef, NodeDef
from rewrite.call_graph import CallGraph
from rewrite.compare_graphs import same_content
from rewrite.order.order_edges import closing
from rewrite.pass_base import RewriteError, op_path
from rewrite.split.effects import NEVER_WRITE, has_no_effect

MARK = "_runs_again"
"""The attribute that names a copy's original; TensorFlow leaves names that begin so to others."""

AGAIN = "again"
"""The last part of a copy's name; those of a shard's op go on belonging to that shard."""

Place = tuple[str, str]
"""(function, node) as they stand in a GraphDef; "" is the main graph."""


@dataclasses.dataclass(frozen=True)
class NodeCopy:
    """An op that is to run once more, in the body in which it stands.

    Attributes:
      op: where it stands.
      reads: {node of the body: the number of its copy that is read instead}.
      after: the node of the body that it waits for; "" for none.
    """

    op: Place
    reads: Mapping[str, int]
    after: str = ""


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """What is computed again.

    Attributes:
      copies: [C], each reads only of those before it.
      reads: {op: {node of its body: the number of the copy that it reads instead}}.
    """

    copies: Sequence[NodeCopy] = ()
    reads: Mapping[Place, Mapping[str, int]] = dataclasses.field(default_factory=dict)


def with_plan(graph_def: GraphDef, plan: MemoryPlan) -> GraphDef:
    """A copy of a graph in which these ops run again; RewriteError: the plan is not of it."""
    planned = type(graph_def)()
    planned.CopyFrom(graph_def)
    body = dict(bodies(planned))
    nodes = {f: {node.name: node for node in of_body} for f, of_body in body.items()}
    names: list[str] = []
    for each in plan.copies:
        function, name = each.op
        if name not in nodes.get(function, {}):
            raise RewriteError(f"computing {op_path(*each.op)!r} again: the graph has no such op")
        again = copy.deepcopy(nodes[function][name])
        again.name = free_name(f"{name}/{AGAIN}", nodes[function])
        again.attr[MARK].s = name.encode()
        _read_copies(again, {node: names[number] for node, number in each.reads.items()})
        if each.after:
            again.input.append(f"^{each.after}")
        body[function].append(again)
        nodes[function][again.name] = body[function][-1]
        names.append(again.name)
    for (function, name), reads in plan.reads.items():
        _read_copies(nodes[function][name], {node: names[number] for node, number in reads.items()})
    pairs = zip(plan.copies, names, strict=True)
    waits = [(each.op[0], name, each.after) for each, name in pairs if each.after]
    # A call that is not opened waits for all that it is given: what waits for one in a circle may
    # run early, and then spares nothing.
    for function, name, after in list(closing(CallGraph(planned), waits)):
        nodes[function][name].input.remove(f"^{after}")
    return planned


def without_plan(graph_def: GraphDef) -> GraphDef:
    """The graph itself where nothing in it runs again, else a copy without the copies."""
    if not has_plan(graph_def):
        return graph_def
    cleared = type(graph_def)()
    cleared.CopyFrom(graph_def)
    for _, nodes in bodies(cleared):
        original = {n.name: n.attr[MARK].s.decode() for n in nodes if MARK in n.attr}
        if not original:
            continue
        kept = [node for node in nodes if node.name not in original]
        for node in kept:
            _read_copies(node, original)
        kept = copy.deepcopy(kept)
        del nodes[:]
        nodes.extend(kept)
    return cleared


def has_plan(graph_def: GraphDef) -> bool:
    """Whether anything in a graph runs again."""
    return any(MARK in node.attr for _, nodes in bodies(graph_def) for node in nodes)


def check_plan(given: GraphDef, planned: GraphDef) -> int:
    """Proves that a graph computes what another one does, equal but for copies; returns how many.

    Raises:
      RewriteError: an op reads something else, a copy is none of its original, or may not be.
    """
    if not same_content(without_plan(given), without_plan(planned)):
        raise RewriteError("taking out what runs again: the rest is not the graph as it came")
    count, library = 0, library_of(planned)
    for function, nodes in bodies(planned):
        own = {node.name: node for node in nodes}
        original = {n.name: n.attr[MARK].s.decode() for n in nodes if MARK in n.attr}
        for name in original:
            _check_copy(function, own[name], own, original)
            if not has_no_effect(own[name], library) or own[name].op in NEVER_WRITE:
                raise RewriteError(f"checking {op_path(function, name)!r}: it may not run twice")
        count += len(original)
    return count


def _check_copy(
    function: str, again: NodeDef, own: Mapping[str, NodeDef], original: Mapping[str, str]
) -> None:
    """A copy is its original but for name, device, mark and one op that it waits for."""
    first, path = own.get(original[again.name]), op_path(function, again.name)
    if first is None or MARK in first.attr:
        raise RewriteError(f"checking {path!r}: what it runs again is not in the graph")
    found = copy.deepcopy(again)
    found.name, found.device = first.name, first.device  # it may lie elsewhere
    del found.attr[MARK]
    _read_copies(found, original)
    expected = copy.deepcopy(first)
    _read_copies(expected, original)
    added = list(found.input)[len(expected.input) :]
    del found.input[len(expected.input) :]
    if not same_content(found, expected) or len(added) > 1 or any(n[0] != "^" for n in added):
        raise RewriteError(f"checking {path!r}: it is not the same op as {first.name!r}")


def _read_copies(node: NodeDef, copies: Mapping[str, str]) -> None:
    """Makes a node read other nodes' outputs of the same number or name; waiting stays as it is."""
    for position, name in enumerate(node.input):
        op, colon, output = name.partition(":")
        if op in copies:  # a control input's name begins with ^
            node.input[position] = f"{copies[op]}{colon}{output}"
