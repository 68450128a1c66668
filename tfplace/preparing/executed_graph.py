"""From the nodes that TensorFlow runs back to the ops that the user wrote.

Grappler folds constants, merges equal ops, fuses (`_FusedMatMul` under the name of the BiasAdd),
joins chains of additions into one AddN of a new name, and puts while bodies in place of a While.
Costs belong to what runs, placements to what the user wrote, so an executed node's time goes to
its own op, and, where it took over others, to these in proportion to what each would cost alone:
placing them together moves all of it, and the parts are sensible where they lie apart.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphs.names import op_of
from graphs.op_graph import FloatArray
from graphs.protos import NodeDef
from tfplace.measurement.training_run import ExecutedNode

# Scopes in which Grappler puts what it makes: "a/ArithmeticOptimizer/AddOpsRewrite_b" is of a/b.
_OPTIMIZER_SCOPE = re.compile(
    r"(^|/)(?:ArithmeticOptimizer|ConstantFolding|ConstantFoldingCtrl|LayoutOptimizer|Remapper|"
    r"LoopOptimizer|DependencyOptimizer|MemoryOptimizer|PinToHostOptimizer|ScopedAllocator|"
    r"Recomputed)/"
)
_LIBRARY_PREFIX = re.compile(r"^_(?:Mkl(?:Native)?)?")
# Their value follows from shapes, which Grappler knows: it puts a constant in their place.
_SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs"})


@dataclasses.dataclass(frozen=True)
class Attribution:
    """Which ops of the user's graph the executed nodes stand for; indices of flat nodes.

    Attributes:
      nodes_of: {executed node: its own op first, then those that it took over}; executed nodes
        that only the runtime knows (sends, feeds) are not in it.
      is_absent: bool[nodes] not executed as such: folded, merged, taken over, or not needed.
      place: i8[nodes] where TensorFlow lists it, or what took it over, among the executed nodes;
        of another absent one that of the last node before it, -1 where there is none.
    """

    nodes_of: Mapping[str, Sequence[int]]
    is_absent: npt.NDArray[np.bool_]
    place: npt.NDArray[np.int64]

    def shared(self, seconds_of: Mapping[str, float], alone_seconds: FloatArray) -> FloatArray:
        """f8[nodes]: executed nodes' seconds, given to the ops that they stand for; else 0.

        Args:
          alone_seconds: f8[nodes] what each would cost by itself; the measure of its share.
        """
        total: FloatArray = np.zeros(len(self.is_absent))
        for name, seconds in seconds_of.items():
            nodes = list(self.nodes_of.get(name, ()))
            if len(nodes) == 1:
                total[nodes[0]] += seconds
            elif nodes:
                weight = np.nan_to_num(alone_seconds[nodes], posinf=0.0)
                if not weight.sum():
                    weight[0] = 1.0
                total[nodes] += seconds * weight / weight.sum()
        return total


def attribute(nodes: Sequence[NodeDef], executed: Sequence[ExecutedNode]) -> Attribution:
    """Maps executed nodes to the user's.

    Args:
      nodes: NodeDefs of the flat graph, in a topological order.
      executed: all nodes of all devices.
    """
    index = {node.name: i for i, node in enumerate(nodes)}
    root_of = _roots(executed, index)
    names = {node.name for node in executed}
    is_absent = np.array([node.name not in names for node in nodes], dtype=bool)
    is_source = np.array([all(i.startswith("^") for i in node.input) for node in nodes], bool)
    may_be_taken = is_absent & ~is_source & ~_constants(nodes, index)
    claimed = set(root_of.values())
    nodes_of: dict[str, Sequence[int]] = {}
    for made in executed:
        root = root_of.get(made.name)
        if root is None:
            continue
        others: Iterable[int] = ()
        own, its = (_LIBRARY_PREFIX.sub("", each.op) for each in (made, nodes[root]))
        # It does more than the op of its name where it is of another type, or of a new name.
        if made.name != nodes[root].name or own != its:
            others = _taken_over(root, nodes, index, may_be_taken, claimed)
        nodes_of[made.name] = (root, *others)
    place = np.full(len(nodes), -1, dtype=np.int64)
    for position, made in enumerate(executed):
        here = np.array(nodes_of.get(made.name, ()), dtype=np.int64)
        place[here[place[here] < 0]] = position
    for i, node in enumerate(nodes):
        if place[i] < 0 and node.input:
            place[i] = max(place[index[op_of(name)]] for name in node.input)
    return Attribution(nodes_of, is_absent, place)


def _taken_over(
    root: int,
    nodes: Sequence[NodeDef],
    index: Mapping[str, int],
    may_be: npt.NDArray[np.bool_],
    claimed: set[int],
) -> list[int]:
    """Ops before the root that are gone: those between it and what it now takes as input.

    `may_be` leaves out feeds, constants and what follows from them: nobody has to compute those.
    """
    found: list[int] = []
    waiting, seen = [root], {root}
    while waiting:
        for name in nodes[waiting.pop()].input:
            source = index[op_of(name)]
            if name.startswith("^") or source in seen:
                continue
            seen.add(source)
            if may_be[source] and source not in claimed:
                found.append(source)
                waiting.append(source)
    return found


def _constants(nodes: Sequence[NodeDef], index: Mapping[str, int]) -> npt.NDArray[np.bool_]:
    """bool[nodes]: Grappler can compute it before the run."""
    constant = np.zeros(len(nodes), dtype=bool)
    for i, node in enumerate(nodes):
        sources = [index[op_of(name)] for name in node.input if not name.startswith("^")]
        constant[i] = (
            node.op == "Const" or node.op in _SHAPE_OPS or bool(sources and constant[sources].all())
        )
    return constant


def _roots(executed: Sequence[ExecutedNode], index: Mapping[str, int]) -> dict[str, int]:
    """{executed node: the op that it computes}."""
    known = {node.name: (n for n in _candidates(node.name) if n in index) for node in executed}
    firsts = ((name, next(found, None)) for name, found in known.items())
    return {name: index[first] for name, first in firsts if first is not None}


def _candidates(name: str) -> Iterator[str]:
    """Names of the op that Grappler or the inliner named `name` after, the likeliest first.

    Where the name itself tells none, its scopes may: "loop/body/_1/double" is of the While, and
    "sums/AddN_8/tmp_var_accum_1" of an AddN that became accumulations.
    """
    while name:
        yield from _originals(name)
        name = name.rpartition("/")[0]


def _originals(name: str) -> Iterator[str]:
    """The name without what Grappler's optimizers add before, in and after it."""
    yield name
    plain = _OPTIMIZER_SCOPE.sub(r"\1", name)
    is_made = plain != name
    while True:  # "conv-0-TransposeNHWCToNCHW-LayoutOptimizer", "add-folded"
        yield plain
        if is_made:
            scope, slash, leaf = plain.rpartition("/")
            words = leaf.split("_")
            for first in range(1, len(words)):  # "AddOpsRewrite_AddN_8"
                yield scope + slash + "_".join(words[first:])
            for end in range(len(words) - 1, 0, -1):  # "RealDiv_recip"
                yield scope + slash + "_".join(words[:end])
        plain, dash, _ = plain.rpartition("-")
        if not dash:
            return
        is_made = True
