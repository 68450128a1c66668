"""Proves that the model that was made holds the split step that was proven, and runs nothing else.

The step is proven as one graph of single ops. What is emitted is made of it: the body of a
function, or ops among those of the unsplit step. That is opened again, as any model is, and read
from its outputs backwards, side by side with the step, which is opened by the same rules: a call
that stayed one unit runs a function of its own for each shard. Where the step was written op by op
under the names that it has, its nodes are the step's, bit by bit, and nothing is opened.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.building.flatten import flatten
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.graph_edges import edges_of
from graphs.graph_view import reached
from graphs.names import data_inputs, op_of, parse_input
from graphs.protos import AttrValue, GraphDef, NodeDef, Nodes
from graphs.source_model import SourceModel
from rewrite.pass_base import RewriteError
from rewrite.split.split_step import SplitStep
from rewrite.split.write.split_graph import with_outputs

_READING = "reading the written step"
_PASSING = frozenset({"Identity", "IdentityN"})
_ORDERING = frozenset({"NoOp"})
_FREE = _PASSING | _ORDERING | {"Const"}
"""What may be there besides: it changes nothing."""
_ALSO_RUN = _FREE | set(op_types.PLACEHOLDERS)


def prove_written(source: SourceModel, step: SplitStep, outputs: Mapping[str, str]) -> None:
    """Compares the run of a model with the split step that it should be.

    Args:
      outputs: {Identity op of the step: the fetched tensor "op:i" that it stands for}.

    Raises:
      RewriteError: the model runs something else.
    """
    if has_nodes_of(source, step, outputs):
        return
    named, run = with_outputs(source)
    opened = flatten(run.graph_def, run.feeds, run.fetches, open_conditionals=False)
    proven = flatten(step.graph_def, (), step.fetches, open_conditionals=False)
    paired = PairedGraphs(proven.nodes, opened.nodes, _is_same_op, _origins)
    found = {tensor: f"{identity}:0" for identity, tensor in named.items()}
    for identity, tensor in outputs.items():
        if tensor not in found:
            raise RewriteError(f"{_READING}: it has no output {tensor!r}")
        own, there = origin(proven.nodes, f"{identity}:0"), origin(opened.nodes, found[tensor])
        paired.pair(_READING, [own], [there])
    call = op_of(source.fetches[0])
    for name, node in proven.nodes.items():
        if node.op not in _FREE and name not in paired.partner.of:
            paired.pair(_READING, [name], [_of_this_name(name, call, opened)])
    # What an op of the step waits for, it waits for in the written model. What is fed is there
    # before anything runs: an argument of a function is waited for by none.
    partner, fed = paired.partner.of, {op_of(spec.tensor) for spec in source.feeds}
    for name, there in partner.items():
        wanted = {partner[each] for each in _waits(proven.nodes, name) if each in proven.nodes}
        if missing := wanted - _waits(opened.nodes, there) - fed:
            raise RewriteError(f"{_READING}: {there!r} no longer waits for {min(missing)!r}")
    for name, node in opened.nodes.items():
        if name not in paired.partner.back and node.op not in _ALSO_RUN:
            raise RewriteError(f"{_READING}: it runs {name!r}, too")
    functions = library_of(opened.graph_def)
    for name, function in library_of(proven.graph_def).items():
        if name in functions and functions[name] != function:
            raise RewriteError(f"{_READING}: the function {name!r} is another one")


def _of_this_name(name: str, call: str, opened: FlatGraph) -> str:
    """An op that no output needs has its name; in a function it may lie in the call's scope."""
    for there in (name, f"{call}/{name}", f"{call}/{name}_"):
        if there in opened.nodes:
            return there
    raise RewriteError(f"{_READING}: it has lost {name!r}")


def _origins(nodes: Nodes, node: NodeDef) -> list[str]:
    return [origin(nodes, name) for name in data_inputs(node)]


def _waits(nodes: Nodes, name: str) -> set[str]:
    """The ops that an op, or what hands it its inputs, waits for by control edges."""
    skipped = _PASSING | _ORDERING
    edges = [  # what an op is to wait for, and maybe nothing else
        op_of(each)
        for each in nodes[name].input
        if each.startswith("^") or nodes[op_of(each)].op in _PASSING
    ]
    ops = reached(edges, lambda op: map(op_of, nodes[op].input) if nodes[op].op in skipped else ())
    return {op for op in ops if nodes[op].op not in skipped | {"Const"}}


def has_nodes_of(source: SourceModel, step: SplitStep, outputs: Mapping[str, str]) -> bool:
    """Whether a model runs the very nodes of a step, and nothing else; False says nothing yet.

    That is how a graph has it, where ops keep the names that they have in the step. Of equal nodes
    one reads what the other reads: so what is only in the step has no reader.
    """
    wanted = _reached(step.graph_def, step.fetches)
    there = _reached(source.graph_def, source.fetches)
    functions = library_of(source.graph_def)
    fetched = {op_of(each) for each in source.fetches if ":" in each}
    return (
        None not in (*wanted.values(), *there.values())
        and all(_is_same(there[name], node) for name, node in wanted.items() if name in there)
        and all(node.op in _FREE for name, node in wanted.items() if name not in there)
        and all(node.op in _ALSO_RUN for name, node in there.items() if name not in wanted)
        and all(functions.get(name) == f for name, f in library_of(step.graph_def).items())
        and all(op_of(tensor) in fetched for tensor in outputs.values())
        and all(
            origin(wanted, f"{identity}:0") == origin(there, tensor)
            for identity, tensor in outputs.items()
        )
    )


def _is_same(one: NodeDef, other: NodeDef) -> bool:
    return bool(one == other) or (list(one.input) == list(other.input) and _is_same_op(one, other))


def _reached(graph_def: GraphDef, fetches: Sequence[str]) -> dict[str, NodeDef]:
    """{op that running the fetches runs: its node}; {"": None} besides where one is missing."""
    nodes = list(graph_def.node)
    number_of, edges = {node.name: number for number, node in enumerate(nodes)}, edges_of(nodes)
    producer, first = edges.producer.tolist(), edges.first.tolist()
    ops = reached(
        (number_of.get(op_of(fetch), -1) for fetch in fetches),
        lambda op: producer[first[op] : first[op + 1]] if op >= 0 else (),
    )
    there = {nodes[op].name: nodes[op] for op in ops if op >= 0}
    return there if len(there) == len(ops) else {**there, "": None}


def origin(nodes: Nodes, tensor: str) -> str:
    """The tensor that ops hand on as this one."""
    source = parse_input(tensor)
    for _ in nodes:
        if nodes[source.op].op not in _PASSING:
            return source.tensor
        source = parse_input(data_inputs(nodes[source.op])[source.output])
    raise RewriteError(f"{_READING}: {tensor!r} is handed on in a circle")


def _is_same_op(node: NodeDef, other: NodeDef) -> bool:
    """Whether nodes do the same with what they read; of what is fed its name says all."""
    if node.op != other.op:
        return False
    if node.op in op_types.PLACEHOLDERS:
        return bool(node.name == other.name)
    return _attributes(node) == _attributes(other)


def _attributes(node: NodeDef) -> dict[str, AttrValue]:
    return {key: value for key, value in node.attr.items() if not key.startswith("_")}


class OneToOne:
    """Which is which, either way.

    Attributes:
      of: {one: the other}.
      back: {the other: the one}.
    """

    def __init__(self) -> None:
        self.of: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}

    def fits(self, one: object, other: object) -> bool:
        """Whether these belong to each other, by what is known; they do from then on."""
        return bool(
            self.of.setdefault(one, other) == other and self.back.setdefault(other, one) == one
        )


class PairedGraphs:
    """Which op of one graph is which op of another.

    Attributes:
      partner: {op of the first: op of the second}, as far as they were read.
    """

    def __init__(
        self,
        mine: Nodes,
        its: Nodes,
        is_same: Callable[[NodeDef, NodeDef], bool],
        reads: Callable[[Nodes, NodeDef], Sequence[str]] = lambda _, node: node.input,
    ) -> None:
        """Begins; `is_same` says whether two ops do the same with what they read."""
        self._mine, self._its, self._is_same, self._reads = mine, its, is_same, reads
        self.partner = OneToOne()
        self._todo: list[str] = []

    def pair(self, what: str, mine: Iterable[str], its: Iterable[str]) -> None:
        """Tensors and ops have to be the same, with all that they are made of; "" is none.

        Args:
          what: is done; messages begin with it.
          mine: their names in the first graph.
          its: those in the second one.

        Raises:
          RewriteError: they are others.
        """
        self._pair(what, [*filter(None, mine)], [*filter(None, its)])
        while self._todo:
            node = self._mine[self._todo.pop()]
            other = self._its[self.partner.of[node.name]]
            read = self._reads(self._mine, node), self._reads(self._its, other)
            if len(read[0]) != len(read[1]) or not self._is_same(node, other):
                raise RewriteError(f"{what}: {other.name!r} isn't the op {node.name!r}")
            self._pair(what, *read)

    def _pair(self, what: str, mine: Sequence[str], its: Sequence[str]) -> None:
        for one, other in zip(mine, its, strict=True):
            here, there = op_of(one), op_of(other)
            is_new = here not in self.partner.of
            if (
                parse_input(one).output != parse_input(other).output
                or (here in self._mine) != (there in self._its)
                or not self.partner.fits(here, there)
            ):
                raise RewriteError(f"{what}: {other!r} stands for {one!r}")
            if is_new and here in self._mine:  # a saver may name what was taken out of the graph
                self._todo.append(here)
