"""Peak memory of a run by TensorFlow's executor, as the contract, section 6, says.

The executor takes up last what became ready first, so gradients of weights wait on its stack while
those of activations go on.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from graphs import op_types
from graphs.building.constant_values import folded_nodes
from graphs.building.unseen_memory import copied_on_write, loop_sums
from graphs.executor_model import depth_first
from graphs.names import data_inputs, op_of, parse_input
from graphs.op_graph import BoolArray, IntArray, LongArray, OpGraph
from graphs.problem import Problem
from tfplace.choosing.scheduling.edges import (
    EdgedProblem,
    OrderEdges,
    order_edges,
    with_order_edges,
)
from tfplace.choosing.scheduling.model_order import ModelOrder
from tfplace.measurement.workers import executor_threads
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.schedule import held_intervals, memory_use
from tfplace.simulation.simulator import Simulator

NUM_DRAWS, NUM_DRAWS_OF_SUMS = 9, 99
"""Orders of the ops without inputs; with sums in loops peaks are much further apart."""
MEDIAN, MEDIAN_OF_SUMS = 4, 39
"""Which of them, by peak, is the prediction. An LSTM's sums came late in 6 of 11 runs and in 82 of
99 draws: TensorFlow's order is not quite random (decision 070)."""


def predicted_peaks(prepared: PreparedModel, device_of_op: IntArray) -> list[int]:
    """[D] bytes, a placement i4[N] run by TensorFlow's executor: of several draws the median.

    A variable that is updated while what was read of it is still needed is copied (TensorFlow's
    `PrepareToUpdateVariable`), and loops hold what `LoopSums` says: rule 6 knows of neither.
    """
    order, of_node, nodes = prepared.order, prepared.built.op_of_node, prepared.flat.graph_def.node
    problem, loops = _with_loops(prepared)
    edges = order.ordered(prepared, device_of_op).edges if isinstance(order, ModelOrder) else None
    slots = np.maximum(problem.device_slots, executor_threads(len(np.unique(device_of_op))))
    executor = problem.executor or depth_first(problem.graph.op_types, problem.num_devices)
    own = np.arange(problem.num_ops, dtype=np.int32)
    turn = own if prepared.op_turn is None else prepared.op_turn
    size = problem.graph.op_persistent_bytes[of_node]
    updates = [
        (int(of_node[update]), of_node[reads], int(size[variable]))
        for update, reads, variable in copied_on_write(nodes)
    ]
    first, draws, begins = np.setdiff1d(own, problem.graph.use_op), np.random.default_rng(0), None
    if loops and edges is None:
        is_folded = np.zeros(problem.num_ops, dtype=bool)
        is_folded[of_node[folded_nodes(prepared.flat, prepared.properties)]] = True
        begins = _Beginning(problem.graph, executor.runs_inline, is_folded)
        edges = begins.edges(device_of_op)
    found = []
    num_draws, taken = (
        (NUM_DRAWS, MEDIAN) if begins is None else (NUM_DRAWS_OF_SUMS, MEDIAN_OF_SUMS)
    )
    for _ in range(num_draws):
        drawn = turn.copy()
        drawn[first] = turn[draws.permutation(first)]
        if begins is not None:
            drawn = begins.turn(turn, drawn.tolist())
        run = dataclasses.replace(
            problem, executor=dataclasses.replace(executor, op_turn=drawn[None]), device_slots=slots
        )
        edged = EdgedProblem(run, own) if edges is None else with_order_edges(run, edges)
        found.append(_peaks_of_run(edged, edged.renumbered(device_of_op), updates, loops))
    return sorted(found, key=sum)[taken]


class _Beginning:
    """How TensorFlow begins a step: all that is cheap and waits for nothing else runs at once.

    What that makes ready goes on a stack, from which what came last starts first. So it is known
    whether what a loop sums to comes late; steps without such sums are as well predicted without.

    Attributes:
      at_once: ops that run at once.
      next: ops that are ready then.
    """

    def __init__(self, graph: OpGraph, runs_inline: BoolArray, is_folded: BoolArray):
        self._before: list[list[int]] = [[] for _ in range(graph.num_ops)]
        producer = graph.tensor_producer[graph.use_tensor].tolist()
        for op, before in zip(graph.use_op.tolist(), producer, strict=True):
            self._before[op].append(before)
        ready, at_once = np.empty((2, graph.num_ops), dtype=bool)
        for op, before in enumerate(self._before):  # in topological order
            ready[op] = at_once[before].all()
            at_once[op] = ready[op] and (runs_inline[op] or is_folded[op])
        for op in np.flatnonzero(is_folded).tolist():  # TensorFlow has a constant there
            self._before[op] = []
        self.at_once: list[int] = np.flatnonzero(at_once).tolist()
        self.next: list[int] = np.flatnonzero(ready & ~at_once).tolist()

    def edges(self, device_of_op: IntArray) -> OrderEdges:
        """On each device nothing else starts before the last of those that run at once."""
        before, after = [], []
        for device in np.unique(device_of_op):
            here = [op for op in self.at_once if device_of_op[op] == device]
            then = [op for op in self.next if here and device_of_op[op] == device]
            before += here[:-1] + here[-1:] * len(then)
            after += here[-1:] * len(here[:-1]) + then
        return order_edges(before, after)

    def turn(self, turn: IntArray, place: list[int]) -> IntArray:
        """i4[N] for rule 7, if ops without inputs run in the order of `place` [N].

        Args:
          turn: i4[N] as TensorFlow lists ops.
          place: is changed.
        """
        size, before = len(place), self._before
        for op in self.at_once:  # in turns: what is ready waits for all that was ready earlier
            place[op] = max((size + place[each] for each in before[op]), default=place[op])
        came = {
            op: max((place[each] for each in before[op]), default=place[op] - size)
            for op in self.next
        }
        first = [*self.at_once, *sorted(self.next, key=lambda op: (came[op], turn[op]))]
        placed = set(first)
        others = [op for op in np.argsort(turn).tolist() if op not in placed]
        drawn = np.empty(size, dtype=np.int32)
        drawn[first + others] = np.arange(size)
        return drawn


class _Loop(NamedTuple):
    """A loop, ops that give it what it adds to, bytes that wait for each, and that go meanwhile."""

    op: int
    inputs: LongArray
    waiting: LongArray
    gone: int


def _with_loops(prepared: PreparedModel) -> tuple[Problem, list[_Loop]]:
    """The problem as loops run, and what they hold.

    What uses a handle that a loop hands on does not wait for the loop (lower_while_op.cc).
    """
    graph, nodes = prepared.problem.graph, prepared.flat.graph_def.node
    ops = prepared.built.op_of_node.tolist()
    number = {node.name: op for node, op in zip(nodes, ops, strict=True)}
    pairs = zip(graph.tensor_producer.tolist(), graph.tensor_output.tolist(), strict=True)
    row = {pair: tensor for tensor, pair in enumerate(pairs)}

    def rows(names: Iterable[str]) -> list[int]:
        """Tensors; -1 for what does not leave its op."""
        return [row.get((number[each.op], each.output), -1) for each in map(parse_input, names)]

    source = np.arange(graph.num_tensors)
    for node in nodes:
        given = data_inputs(node) if node.op in op_types.LOOPS else []
        handed = rows(f"{node.name}:{k}" for k in range(len(given)))
        for name, before, after in zip(given, rows(given), handed, strict=True):
            if prepared.properties.dtype(name) == "resource" and min(before, after) >= 0:
                source[after] = source[before]
    uses = np.unique(source[graph.use_tensor] * graph.num_ops + graph.use_op)
    of_tensor, of_op = (each.astype(np.int32) for each in np.divmod(uses, graph.num_ops))
    loops = []
    for loop in loop_sums(prepared.flat, prepared.properties):
        lists = np.array([tensor for tensor in rows(loop.lists) if tensor >= 0], dtype=np.int64)
        buffers = np.unique(
            np.where(graph.tensor_shares[lists] < 0, lists, graph.tensor_shares[lists])
        )
        gone = int(loop.share * graph.tensor_alloc_bytes[buffers].sum())
        inputs = np.array([number[op_of(name)] for name in loop.sums], dtype=np.int64)
        loops.append(_Loop(number[loop.loop], inputs, np.array([*loop.sums.values()], int), gone))
    graph = dataclasses.replace(graph, use_tensor=of_tensor, use_op=of_op)
    return dataclasses.replace(prepared.problem, graph=graph), loops


def _peaks_of_run(
    edged: EdgedProblem,
    device_of_op: IntArray,
    updates: Sequence[tuple[int, IntArray, int]],
    loops: Sequence[_Loop],
) -> list[int]:
    """[D] bytes that a run holds; `updates` and `loops` have the model's numbers."""
    problem, graph = edged.problem, edged.problem.graph
    schedule = Simulator(problem, num_threads=1).schedule(device_of_op)
    held, own = held_intervals(problem, schedule), np.argsort(edged.op_at)
    start, end = schedule.op_start, schedule.op_end
    ends, gives = np.full(problem.num_ops, -np.inf), np.flatnonzero(graph.tensor_output >= 0)
    np.maximum.at(ends, graph.tensor_producer[gives], held.end[gives])
    more: list[tuple[int, float, int]] = []  # op, until when, bytes
    for update, reads, size in updates:
        op, read = own[update], own[reads]
        more.append((op, ends[read[start[read] < start[op]]].max(initial=-np.inf), size))
    for loop in loops:
        op, sums = own[loop.op], own[loop.inputs]
        given = graph.tensor_producer[graph.use_tensor[graph.use_op == op]]
        is_late = end[sums] > end[np.setdiff1d(given, sums)].max(initial=-np.inf)
        more.append((op, end[op], max(int(loop.waiting[is_late].sum()) - loop.gone, 0)))
    more = [each for each in more if each[1] > start[each[0]]]
    at = np.array([op for op, _, _ in more], dtype=np.int64)
    held = dataclasses.replace(
        held,
        device=np.append(held.device, device_of_op[at]),
        op=np.append(held.op, at),
        start=np.append(held.start, start[at]),
        end=np.append(held.end, [until for _, until, _ in more]),
        bytes=np.append(held.bytes, np.array([size for _, _, size in more], dtype=np.int64)),
    )
    return [int(use.bytes.max(initial=0)) for use in memory_use(problem, schedule, held)]
