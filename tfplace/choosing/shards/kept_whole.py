"""Which ops of a step had better stay whole, although they could be split.

A copy of an op for each shard needs the op's weights on each shard's device, and sends a gradient
of their size back. Where many layers work side by side on a part of the batch each, as the experts
of a mixture do, a device may as well compute one of them for the whole batch.

Which ops these are is a minimum cut (Ford and Fulkerson 1956): on one side what is split, on the
other what is whole. Cutting a tensor costs the bytes that are sent; an op that is whole costs the
time in which other devices can't help with it. That depends on how many such ops run side by side:
the cut is made for 1, 2, 4, ... of them, and the one taken that promises the shortest step.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from graphs.errors import TfplaceError
from graphs.op_graph import FloatArray, LongArray, OpGraph
from rewrite.split.decide.analysis import may_be_left_whole
from rewrite.split.decide.decide import Decisions
from rewrite.split.states import Partial, Sharded
from tfplace.algorithms.placers.legal import working_devices
from tfplace.choosing.shards.split_estimate import copies_of, states_of
from tfplace.grouping.quotient import BoolArray, fastest_seconds
from tfplace.preparing.prepare import PreparedModel, places_of_shards

WORTH, WORTH_BESIDE_UNSPLIT = 0.9, 0.8
"""What is promised has to be so much of what the step promises with all ops split that can be, and
of what it promises with none: recurrent steps, which nearly were unsplit then, came out slower than
unsplit ones (nmt-4 on v100x8: promised 0.91 of it, found 1.2 of it)."""
CLOSE = 1.05
"""Of choices within so much of the best the one with the most whole ops is taken: a step of fewer
ops is read and searched sooner."""
MOST_OPS = 30_000
"""Of a larger step, which takes its time to be read in shards, nothing is left whole: a cut of
12,000 ops takes half a second."""
LARGEST = 1 << 30
"""A capacity that no cut goes through; scipy counts in 32 bits."""
STEPS_OF_LARGEST = 1 << 24
"""The largest tensor in units of capacity."""


def ops_left_whole(prepared: PreparedModel, batch_axes: Mapping[str, int] | None) -> frozenset[str]:
    """Names of the ops; none where all that can be split had better be.

    None as well where ops were timed, since what a copy would take is not known then, and of more
    than MOST_OPS ops.
    """
    num_devices = len(working_devices(prepared.problem))
    is_known = prepared.costs.source == "analytic" and prepared.problem.num_ops <= MOST_OPS
    if not is_known or num_devices < 2:
        return frozenset()
    try:
        places = places_of_shards(prepared.cluster, num_devices)
        decisions = prepared.to_split.decisions(batch_axes, places)
    except TfplaceError:  # reading it says why
        return frozenset()
    choice = _Choice(prepared, decisions, num_devices)
    nothing = np.zeros(prepared.problem.num_ops, bool)
    tried = [nothing]
    concurrent = 1
    while concurrent <= num_devices:
        tried.append(choice.cut(concurrent))
        concurrent *= 2
    promised = [choice.step_seconds(each) for each in tried]
    least = min(promised)
    unsplit = choice.step_seconds(~nothing)
    if least > min(WORTH * promised[0], WORTH_BESIDE_UNSPLIT * unsplit):
        return frozenset()
    close = [each for each, step in zip(tried, promised, strict=True) if step <= least * CLOSE]
    chosen = max(close, key=lambda each: int(each.sum()))
    names = prepared.problem.graph.op_names
    return frozenset(names[op] for op in np.flatnonzero(chosen).tolist())


@dataclasses.dataclass(frozen=True)
class _Edges:
    """Of a flow network.

    Attributes:
      tail, head: i8[E] nodes.
      capacity: f8[E] bytes.
    """

    tail: LongArray
    head: LongArray
    capacity: FloatArray


class _Choice:
    """What may be left whole of one step, on one cluster."""

    def __init__(self, prepared: PreparedModel, decisions: Decisions, num_devices: int) -> None:
        """Estimates what copies take, of N ops, T tensors and U uses on devices that compute."""
        problem = prepared.problem
        self._graph, self._num_devices = problem.graph, num_devices
        answers = decisions.answer_of_op
        names = problem.graph.op_names
        self._may = np.array([n in answers and may_be_left_whole(answers[n]) for n in names], bool)
        self._whole_seconds = fastest_seconds(problem, problem.allowed())
        devices = working_devices(problem)
        copies = copies_of(problem, prepared.cluster.devices, decisions)
        first = devices[0]
        copy = self._whole_seconds / num_devices
        copy += copies.fixed[:, first] * (num_devices - 1) / num_devices
        copy = np.minimum(np.maximum(copy, copies.least[:, first]), self._whole_seconds)
        self._copy_seconds = np.where(copies.is_split, copy, self._whole_seconds)
        self._is_split = copies.is_split
        links = problem.link_bytes_per_second[np.ix_(devices, devices)]
        others = ~np.eye(num_devices, dtype=bool)
        self._bytes_per_second = float(np.median(links[others]))
        self._latency = float(np.median(problem.link_latency[np.ix_(devices, devices)][others]))
        states = states_of(problem.graph, decisions)
        self._is_partial = np.array([isinstance(state, Partial) for state in states], bool)
        self._is_sharded = np.array([isinstance(state, Sharded) for state in states], bool)

    def step_seconds(self, whole: BoolArray) -> float:
        """What a step promises with such ops bool[N] left whole; no bound, but a comparison."""
        is_split = self._is_split & ~whole
        seconds = np.where(is_split, self._copy_seconds, self._whole_seconds)
        work = float(np.where(is_split, seconds * self._num_devices, seconds).sum())
        sent = self._sent_bytes(is_split) / self._bytes_per_second
        one = np.where(sent > 0.0, self._latency + sent / self._num_devices, 0.0)
        path = _longest_path(self._graph, seconds, one)
        return (work + float(sent.sum())) / self._num_devices + path

    def _sent_bytes(self, is_split: BoolArray) -> FloatArray:
        """f8[T] what is sent of each tensor if such ops bool[N] are split, each on its device."""
        by_split, by_whole = self._readers(is_split)
        of_split = is_split[self._graph.tensor_producer]
        to_all = (of_split & self._is_partial & by_whole) | (
            ~of_split & ~self._is_sharded & by_split
        )
        in_parts = (of_split & ~self._is_partial & by_whole) | (
            ~of_split & self._is_sharded & by_split
        )
        return np.where(to_all, self._to_all, np.where(in_parts, self._in_parts, 0.0))

    @property
    def _to_all(self) -> FloatArray:
        """f8[T] bytes of a tensor that goes to, or a sum that comes from, all devices but one."""
        return self._graph.tensor_bytes.astype(np.float64) * (self._num_devices - 1)

    @property
    def _in_parts(self) -> FloatArray:
        """f8[T] bytes of a tensor whose parts come from all devices but one, or go there."""
        return self._to_all / self._num_devices

    def _readers(self, is_split: BoolArray) -> tuple[BoolArray, BoolArray]:
        """bool[T], bool[T]: whether an op reads it that is split, and one that is whole."""
        graph = self._graph
        by_split, by_whole = np.zeros((2, graph.num_tensors), bool)
        by_split[graph.use_tensor[is_split[graph.use_op]]] = True
        by_whole[graph.use_tensor[~is_split[graph.use_op]]] = True
        return by_split, by_whole

    def cut(self, concurrent: int) -> BoolArray:
        """bool[N]: the ops that are left whole, if so many of them work side by side."""
        graph, num_ops = self._graph, self._graph.num_ops
        source, sink = num_ops, num_ops + 1
        lost = self._whole_seconds * (1.0 - 1.0 / self._num_devices) / concurrent
        pull = np.where(self._may, lost * self._bytes_per_second, 0.0)
        ops = np.arange(num_ops)
        always = np.where(self._is_split & ~self._may, np.inf, 0.0)  # split in any case
        edges = [
            _Edges(np.full(num_ops, source), ops, np.maximum(pull, always)),
            *self._tensor_edges(sink),
        ]
        tail, head = (np.concatenate([getattr(e, end) for e in edges]) for end in ("tail", "head"))
        capacity = np.concatenate([each.capacity for each in edges])
        unit = max(float(graph.tensor_bytes.max(initial=1)) / STEPS_OF_LARGEST, 1.0)
        counted = np.minimum(capacity / unit, LARGEST).astype(np.int64)
        kept = counted > 0
        size = num_ops + 2 + 2 * graph.num_tensors
        ends = tail[kept], head[kept]
        network = csr_array(coo_array((counted[kept], ends), shape=(size, size)))
        network.data = np.minimum(network.data, LARGEST).astype(np.int32)
        left = csr_array(network - maximum_flow(network, source, sink).flow)
        left.data = (left.data > 0).astype(np.int32)
        left.eliminate_zeros()
        reached = breadth_first_order(left, source, return_predecessors=False)
        is_reached = np.zeros(size, bool)
        is_reached[reached] = True
        return self._may & ~is_reached[:num_ops]

    def _tensor_edges(self, sink: int) -> list[_Edges]:
        """What it costs if some ends of a tensor are split and others are whole.

        Every tensor has two nodes, `into` and `out_of`, that only one edge joins: it is cut once,
        however many of its ends lie elsewhere.
        """
        graph, is_split = self._graph, self._is_split
        by_split, by_whole = self._readers(is_split)
        of_split = is_split[graph.tensor_producer]
        into = sink + 1 + 2 * np.arange(graph.num_tensors)
        out_of, maker = into + 1, graph.tensor_producer.astype(np.int64)
        use = np.flatnonzero(is_split[graph.use_op])
        user, read = graph.use_op[use].astype(np.int64), graph.use_tensor[use]
        weight = by_split & ~of_split
        part = by_split & of_split & ~self._is_partial
        term = by_split & of_split & self._is_partial & ~by_whole
        price = np.where(self._is_sharded | part, self._in_parts, self._to_all)

        def makers(which: BoolArray, tail: LongArray, head: LongArray, free: bool) -> _Edges:
            """Edges at tensors bool[T]; they cost nothing to keep, or what is sent."""
            capacity = np.where(free, np.inf, price)
            return _Edges(tail[which], head[which], capacity[which])

        def users(which: BoolArray, is_into: bool) -> _Edges:
            """Edges of the ops that read tensors bool[T]: into the tensor, or out of it."""
            own = user[which[read]]
            tensors = (into if is_into else out_of)[read[which[read]]]
            ends = (own, tensors) if is_into else (tensors, own)
            return _Edges(*ends, np.full(len(own), np.inf))

        sinks = np.full(graph.num_tensors, sink)
        return [
            # Whole, and read by copies: it is sent as soon as one of them is split.
            users(weight, is_into=True),
            makers(weight, into, sinks, free=False),
            # Made by copies, and read by what is whole in any case.
            makers(of_split & by_whole, maker, sinks, free=False),
            # Made and read in parts: it is sent if not all of these are split, or none.
            makers(part, maker, into, free=True),
            users(part, is_into=True),
            makers(part, into, out_of, free=False),
            makers(part, out_of, maker, free=True),
            users(part, is_into=False),
            # Terms that copies read as such: what is whole needs their sum.
            makers(term, maker, out_of, free=False),
            users(term, is_into=False),
        ]


def _longest_path(graph: OpGraph, seconds: FloatArray, message: FloatArray) -> float:
    """Seconds of the longest path of ops f8[N], and of a message of each tensor f8[T] between."""
    end = [0.0] * graph.num_ops
    order = np.argsort(graph.use_op, kind="stable")
    ends_at = np.searchsorted(graph.use_op[order], np.arange(graph.num_ops), side="right").tolist()
    tensors, begin = graph.use_tensor[order], 0
    makers, sent = graph.tensor_producer[tensors].tolist(), message[tensors].tolist()
    for op, (until, own) in enumerate(zip(ends_at, seconds.tolist(), strict=True)):
        arrived = (end[makers[use]] + sent[use] for use in range(begin, until))
        end[op] = own + max(arrived, default=0.0)
        begin = until
    return max(end, default=0.0)
