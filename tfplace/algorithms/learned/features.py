"""What policies are told about ops and groups: pure functions of a problem.

Source: ColocRL and HDP as tfplace/docs/published.md has them: op type, output shapes, neighbours;
for a group the counts of its types, its summed output shapes, its neighbours. Departures: sizes go
in as logarithms, because raw ones span nine orders of magnitude; seconds and bytes are added for a
group, because the costs are known here.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphs.op_graph import SHAPE_DIMS, FloatArray, IntArray, OpGraph
from graphs.problem import Grouping, Problem
from tfplace.grouping.quotient import fastest_seconds, group_sums, quotient

FeatureArray = npt.NDArray[np.float32]

MAX_OUTPUTS = 6
MAX_NEIGHBOURS = 6


def _side_by_side(blocks: Mapping[str, npt.NDArray[np.generic]]) -> FeatureArray:
    """f4[rows, F]: named blocks [rows, width] in their order."""
    return np.concatenate(list(blocks.values()), axis=1).astype(np.float32)


def type_ids(op_types: Sequence[str]) -> tuple[IntArray, tuple[str, ...]]:
    """Number i4[N] of each op's type, and the types by number, in alphabetical order."""
    vocabulary, ids = np.unique(np.asarray(op_types, dtype=str), return_inverse=True)
    return ids.astype(np.int32), tuple(str(name) for name in vocabulary)


def output_shapes(graph: OpGraph) -> FloatArray:
    """f8[N, 24]: log2(1 + size) of up to 4 dimensions of up to 6 outputs, 0 where there is none.

    Control tensors have no shape and take no place.
    """
    slots = np.zeros((graph.num_ops, MAX_OUTPUTS, SHAPE_DIMS))
    shown = (graph.tensor_output >= 0) & (graph.tensor_output < MAX_OUTPUTS)
    sizes = np.log2(1.0 + np.maximum(graph.tensor_shape[shown], 0))
    slots[graph.tensor_producer[shown], graph.tensor_output[shown]] = sizes
    return slots.reshape(graph.num_ops, MAX_OUTPUTS * SHAPE_DIMS)


def neighbours(graph: OpGraph) -> IntArray:
    """i4[N, 12]: the first 6 producers and the first 6 consumers of each op, -1 for none."""
    producer, consumer, _ = graph.op_edges()
    return np.concatenate(
        [
            _first_neighbours(graph.num_ops, consumer, producer),
            _first_neighbours(graph.num_ops, producer, consumer),
        ],
        axis=1,
    )


def _first_neighbours(num_ops: int, op: IntArray, other: IntArray) -> IntArray:
    """i4[N, 6]: the lowest distinct `other` of each `op`."""
    pairs = np.unique(np.stack([op, other], axis=1), axis=0)
    starts = np.searchsorted(pairs[:, 0], np.arange(num_ops))
    place = np.arange(len(pairs)) - starts[pairs[:, 0]]
    first = np.full((num_ops, MAX_NEIGHBOURS), -1, dtype=np.int32)
    shown = place < MAX_NEIGHBOURS
    first[pairs[shown, 0], place[shown]] = pairs[shown, 1]
    return first


def op_features(problem: Problem) -> FeatureArray:
    """f4[N, 37]: what HDP's Grouper sees of each op beside its type.

    Columns: its output shapes 24, its neighbours 12, its position 1. Positions are divided by N, so
    they go from 0 to 1; -1 stands for no neighbour.
    """
    graph = problem.graph
    position = np.arange(graph.num_ops)[:, np.newaxis] / max(graph.num_ops, 1)
    beside = neighbours(graph)
    return _side_by_side(
        {
            "output_shapes": output_shapes(graph) / 10.0,
            "neighbours": np.where(beside >= 0, beside / max(graph.num_ops, 1), -1.0),
            "position": position,
        }
    )


def group_traffic(graph: OpGraph, grouping: Grouping) -> FloatArray:
    """f8[G, G]: bytes that group i's tensors carry to uses in group j; diagonal 0."""
    _, _, size = graph.op_edges()
    return quotient(graph, grouping, size.astype(np.float64)).toarray()


def group_adjacency(graph: OpGraph, grouping: Grouping) -> npt.NDArray[np.bool_]:
    """bool[G, G]: whether group j uses a tensor, or waits for an op, of group i; diagonal False."""
    producer, consumer, _ = graph.op_edges()
    adjacency = np.zeros((grouping.num_groups, grouping.num_groups), dtype=bool)
    adjacency[grouping.group_of_op[producer], grouping.group_of_op[consumer]] = True
    np.fill_diagonal(adjacency, False)
    return adjacency


@dataclasses.dataclass(frozen=True)
class OpTable:
    """What the features of any grouping are sums of."""

    type_counts: sparse.csr_array  # f8[N, V] sparse, a single 1 in each row
    output_shapes: FloatArray  # f8[N, 24]
    seconds: FloatArray  # f8[N] on the fastest device that the op may use
    output_bytes: FloatArray  # f8[N] of all tensors that the op makes


def op_table(problem: Problem) -> OpTable:
    """The table of a problem's ops."""
    graph = problem.graph
    ids, vocabulary = type_ids(graph.op_types)
    counts = (np.ones(graph.num_ops), ids, np.arange(graph.num_ops + 1))
    size = np.zeros(graph.num_ops)
    np.add.at(size, graph.tensor_producer, graph.tensor_bytes)
    return OpTable(
        type_counts=sparse.csr_array(counts, shape=(graph.num_ops, len(vocabulary))),
        output_shapes=output_shapes(graph),
        seconds=fastest_seconds(problem, problem.allowed()),
        output_bytes=size,
    )


def group_features(graph: OpGraph, table: OpTable, grouping: Grouping) -> FeatureArray:
    """f4[G, V + 26 + 2 G]: what the sequence-to-sequence policies see of each group, from 0 to 1.

    Columns: counts of types V, output shapes 24 and output bytes 1 (logarithms of sums over the
    group's ops), seconds 1 (share of all groups'), successors G and predecessors G (0 or 1).
    """
    adjacency = group_adjacency(graph, grouping)
    seconds = group_sums(table.seconds, grouping)[:, np.newaxis]
    return _side_by_side(
        {
            "type_counts": _log_share(group_sums(table.type_counts, grouping).toarray()),
            "output_shapes": _log_share(group_sums(table.output_shapes, grouping)),
            "output_bytes": _log_share(group_sums(table.output_bytes, grouping)[:, np.newaxis]),
            "seconds": seconds / max(float(seconds.sum()), 1e-12),
            "successors": adjacency,
            "predecessors": adjacency.T,
        }
    )


def _log_share(values: FloatArray) -> FloatArray:
    """log(1 + x) over its largest value: 0 to 1."""
    logs = np.log1p(values)
    return logs / max(float(logs.max(initial=0.0)), 1e-12)
