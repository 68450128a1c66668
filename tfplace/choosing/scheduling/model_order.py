"""An order for placements of a model: found when it is first asked for, and kept."""

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from graphs.building.frames import depth_in_conditionals
from graphs.by_key import by_key
from graphs.flat_graph import Origin
from graphs.graph_view import GraphView
from graphs.names import op_of
from graphs.op_graph import IntArray
from graphs.problem import Problem
from graphs.protos import JsonObject
from graphs.source_model import SourceModel
from rewrite.order.order_edges import OrderEdge, components, joined, without_cycles
from rewrite.split.effects import changes_state, has_no_effect
from tfplace.choosing.scheduling.anchors import Anchors, Bools, anchors_of
from tfplace.choosing.scheduling.edges import OrderEdges, order_edges, with_order_edges
from tfplace.choosing.scheduling.list_schedules import Ordered, ordered
from tfplace.choosing.scheduling.sequence import edges_in_turn, in_turn
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.simulated import Simulated, simulated

EDGES, NONE, AUTO = "edges", "none", "auto"
MOST_KEPT = 8


class ModelOrder:
    """A tfplace.preparing.prepare.OrderOfPlacement: the best order that is found for each.

    Attributes:
      seconds: what finding one has taken, the last time.
    """

    def __init__(self) -> None:
        """Has found nothing yet."""
        self._ranks: dict[bytes, IntArray] = {}
        # The problem is kept beside its number, so that no other one gets that number.
        self._found: dict[tuple[int, bytes], tuple[Problem, Ordered]] = {}
        self._anchors: tuple[Problem, Anchors] | None = None
        self._until = math.inf
        self.seconds = 0.0

    def __call__(self, prepared: PreparedModel, device_of_op: IntArray) -> list[OrderEdge]:
        """The edges of a placement i4[N], as the model names its ops."""
        return origin_edges(prepared, self.ordered(prepared, device_of_op).edges)

    def searched_with(self, device_of_op: IntArray, rank: IntArray) -> None:
        """Notes the ranks i4[N] that a placement was searched with: they are tried for it, too."""
        self._ranks[_key(device_of_op)] = rank

    def end_after(self, seconds: float) -> None:
        """From so many seconds on, no further order is tried: what is the best by then counts."""
        self._until = time.monotonic() + seconds

    def ordered(self, prepared: PreparedModel, device_of_op: IntArray) -> Ordered:
        """A placement of the prepared model's problem with its order."""
        key = (id(prepared.problem), _key(device_of_op))
        if key not in self._found:
            while len(self._found) >= MOST_KEPT:
                self._found.pop(next(iter(self._found)))
            began = time.monotonic()
            self._found[key] = (prepared.problem, self._find(prepared, device_of_op))
            self.seconds = time.monotonic() - began
        return self._found[key][1]

    def _find(self, prepared: PreparedModel, device_of_op: IntArray) -> Ordered:
        own = self._ranks.get(_key(device_of_op))
        return ordered(
            prepared.problem,
            device_of_op,
            self._anchors_of(prepared),
            lambda edges: writable(prepared, edges),
            () if own is None else (own,),
            self._until,
        )

    def _anchors_of(self, prepared: PreparedModel) -> Anchors:
        """Of the last problem that was asked about they are kept."""
        problem, anchors = self._anchors or (None, None)
        if anchors is None or problem is not prepared.problem:
            anchors = anchors_of(prepared.problem, bodies_of(prepared), may_be_waited_for(prepared))
            self._anchors = prepared.problem, anchors
        return anchors


class OwnOrder(ModelOrder):
    """The sequence in which a step is simulated, op by op: a memory plan fits in no other one.

    Ops that oneDNN joins to one come one right behind the other in it, as they will run.
    """

    def _find(self, prepared: PreparedModel, device_of_op: IntArray) -> Ordered:
        anchors, problem = self._anchors_of(prepared), prepared.problem
        close, behind = _close_together(prepared)
        edged = with_order_edges(problem, close)
        schedule = simulated(edged.problem, edged.renumbered(device_of_op)).known_schedule()
        sequence = _one_behind_the_other(edged.op_at[in_turn(schedule)].tolist(), behind)
        edges = writable(prepared, edges_in_turn(problem, device_of_op, sequence, anchors))
        unranked = dataclasses.replace(problem, start_rank=None)  # the edges say it
        edged = with_order_edges(unranked, edges)
        outcome = simulated(edged.problem, edged.renumbered(device_of_op)).outcome
        without = simulated(problem, device_of_op).outcome
        return Ordered(unranked, edges, device_of_op, outcome, without)


def joined_ops(prepared: LoadedModel) -> list[tuple[int, int]]:
    """The pairs of ops that TensorFlow makes one op with oneDNN's kernels."""
    op = prepared.built.op_of_node
    pairs = joined(prepared.flat.graph_def.node)
    return [(int(op[one]), int(op[other])) for one, other in pairs if op[one] != op[other]]


def _close_together(prepared: PreparedModel) -> tuple[OrderEdges, dict[int, list[int]]]:
    """What lets joined ops run one right behind the other.

    Returns:
      Edges from all that a second one needs to the first one, and from that to it; and {first one:
      second ones}.
    """
    graph, pairs = prepared.problem.graph, joined_ops(prepared)
    producer, user, _ = graph.op_edges()
    needs = by_key(zip(user.tolist(), producer.tolist(), strict=True))
    first = {second: one for one, second in pairs}
    rows: list[tuple[int, int, int]] = []
    for number, (one, second) in enumerate(pairs):
        head = first.get(one, one)  # a Pad, a Conv2D and a BiasAdd are one op, too
        others = set(needs.get(second, ())) - {one, *needs.get(one, ())}
        rows += [(one, second, number), *((each, head, number) for each in sorted(others))]
    before, after, pair = np.array(rows, dtype=np.int32).reshape(-1, 3).T
    ends = np.concatenate([producer, before]), np.concatenate([user, after])
    circle = components(graph.num_ops, *ends, "strong")
    fits = np.isin(pair, pair[circle[before] == circle[after]], invert=True)
    close = order_edges(before[fits].tolist(), after[fits].tolist())
    return close, by_key(pairs[number] for number in np.unique(pair[fits]).tolist())


def _one_behind_the_other(
    sequence: Iterable[int], behind: Mapping[int, Sequence[int]]
) -> list[int]:
    """The sequence with each op right behind the last of the ops that it is to come behind."""
    waits = Counter(itertools.chain.from_iterable(behind.values()))
    result: dict[int, None] = {}
    for op in sequence:
        coming = [] if op in result else [op]
        while coming:
            op = coming.pop()
            result[op] = None
            for each in behind.get(op, ()):
                waits[each] -= 1
                coming += [each] * (not waits[each])
    return [*result]


def _key(device_of_op: IntArray) -> bytes:
    return device_of_op.astype("int32").tobytes()


def with_order(prepared: PreparedModel, order: str) -> PreparedModel:
    """The prepared model; where `order` is "edges", its placements get an order, too.

    One that has an order already keeps it, with what was found.
    """
    if order != EDGES or prepared.order is not None:
        return prepared
    return dataclasses.replace(prepared, order=ModelOrder())


def wanted_order(options: ProblemOptions, is_present: bool) -> str:
    """ "edges" or "none": what --order=auto stands for.

    Who lets a step be split wants its graph changed for speed. Where the devices are present,
    nothing has shown yet that edges gain what they are predicted to.
    """
    if options.order != AUTO:
        return options.order
    return EDGES if options.num_shards != 1 and not is_present else NONE


def simulated_in_order(
    prepared: PreparedModel, device_of_op: IntArray, without: Simulated | None = None
) -> Simulated:
    """A placement simulated with the order that it gets; its ops may be renumbered then.

    Args:
      device_of_op: i4[N].
      without: the placement simulated without; None to do so where it is needed.
    """
    problem = prepared.problem
    if isinstance(prepared.order, ModelOrder):
        edged = prepared.order.ordered(prepared, device_of_op).edged()
        problem, device_of_op, without = edged.problem, edged.renumbered(device_of_op), None
    return without or simulated(problem, device_of_op)


def order_facts(prepared: PreparedModel, device_of_op: IntArray) -> JsonObject | None:
    """report.json's `order`; None where no order was asked for."""
    if not isinstance(prepared.order, ModelOrder):
        return None
    found = prepared.order.ordered(prepared, device_of_op)
    names, without = prepared.problem.device_names, found.without
    return {
        "edges": len(found.edges),
        "step_seconds_without": without.step_seconds,
        "peak_bytes_without": dict(zip(names, without.peak_bytes, strict=True)),
    }


def bodies_of(prepared: LoadedModel, with_shared: bool = False) -> IntArray:
    """i4[N]: ops with one number stand in one body, which one chain of calls leads to; else -1.

    Left out are ops that may not run, since what waits for them wouldn't run either; units of
    several nodes; what is fed; what other runs of the model run, too, since they would run what it
    waits for; and all of a training step that is not in the model that is written.

    Args:
      with_shared: not to leave out what other runs run, too.
    """
    flat, built = prepared.flat, prepared.built
    body_of_op = np.full(built.graph.num_ops, -1, dtype=np.int32)
    if prepared.source.origins is not None and prepared.source.saved_model_dir:
        return body_of_op
    nodes_of_op = np.bincount(built.op_of_node, minlength=built.graph.num_ops)
    depth = depth_in_conditionals(flat.graph_def.node, flat.unit_of_node)
    fed = {op_of(spec.tensor) for spec in flat.feeds}
    shared = set[str]() if with_shared else _of_other_runs(prepared.source, fed)
    chain_of_function: dict[str, tuple[str, ...]] = {}
    number: dict[str, int] = {}
    for node, origin, op in zip(
        flat.graph_def.node, flat.origins, built.op_of_node.tolist(), strict=True
    ):
        is_whole = nodes_of_op[op] == 1 and flat.share_of_node.get(node.name, 1.0) == 1.0
        if not is_whole or depth[node.name] or not origin.node or node.name in fed:
            continue
        if not origin.function and origin.node in shared:
            continue
        if chain_of_function.setdefault(origin.function, origin.calls) == origin.calls:
            body_of_op[op] = number.setdefault(origin.function, len(number))
    return body_of_op


def _of_other_runs(source: SourceModel, feeds: Collection[str]) -> set[str]:
    """The ops of the main graph that something else than the run runs, too.

    That is what an op reads that is not in the run: of another signature, of what saves or
    initialises variables, or of the unsplit step. And what another signature returns. But not what
    alone the gradients read that TensorFlow 1 makes and nobody uses: who fetches one has to feed
    all that the run is fed, and waits longer.

    Args:
      feeds: the ops of the run that are fed.
    """
    view = GraphView(source.graph_def)
    of_run = {op_of(fetch) for fetch in source.fetches}
    own = view.ancestors(source.fetches)
    is_main = all(feed in view.nodes for feed in feeds)  # else the run is a function's
    behind = set(view.nodes if is_main else ())
    behind = behind.intersection(*(view.descendants([feed]) for feed in feeds if is_main))
    unused = {each for each in behind if has_no_effect(view.nodes[each], view.library)}
    others = [name for name in view.nodes if name not in own and name not in unused]
    for signature in source.signatures.values():
        returned = {op_of(spec.tensor) for spec in signature.outputs.values()}
        others += () if returned == of_run else sorted(returned & view.nodes.keys())
    return {*view.ancestors(others)}


def may_be_waited_for(prepared: LoadedModel) -> Bools:
    """bool[N]: ops that an order may let others wait for.

    Who runs a part of a step that lies in the main graph, the loss alone, must not write variables
    by it: nothing waits there for what writes one, or comes behind such a write.
    """
    flat, built = prepared.flat, prepared.built
    writes: set[str] = set()
    result = np.ones(built.graph.num_ops, dtype=bool)
    for node, origin, op in zip(
        flat.graph_def.node, flat.origins, built.op_of_node.tolist(), strict=True
    ):
        if origin.function:
            continue
        if any(op_of(name) in writes for name in node.input) or changes_state(node, flat.library):
            writes.add(node.name)
            result[op] = False
    return result


def origin_edges(prepared: LoadedModel, edges: OrderEdges) -> list[OrderEdge]:
    """The edges as the model's graph and functions name their ops."""
    node_of_op: dict[int, Origin] = dict(
        zip(prepared.built.op_of_node.tolist(), prepared.flat.origins, strict=True)
    )
    pairs = zip(edges.before.tolist(), edges.after.tolist(), strict=True)
    return [(node_of_op[before], node_of_op[after]) for before, after in pairs]


def writable(prepared: LoadedModel, edges: OrderEdges) -> OrderEdges:
    """The edges without those that close a cycle where calls are not opened, or ops are joined."""
    named = origin_edges(prepared, edges)
    kept = set(without_cycles(prepared.source.graph_def, named))
    mask = np.array([edge in kept for edge in named], dtype=bool)
    return OrderEdges(edges.before[mask], edges.after[mask])
