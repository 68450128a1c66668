"""A problem with control edges added: what an order is to the simulator, which knows nothing new.

The simulator wants ops in a topological order, so adding edges may renumber them. They keep the
order that they had wherever the edges allow it: among equals the index decides what starts first,
and that must not do what only the edges may.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.executor_model import ExecutorModel
from graphs.graph_edges import in_order
from graphs.op_graph import IntArray, OpGraph
from graphs.problem import Problem


@dataclasses.dataclass(frozen=True)
class OrderEdges:
    """Control edges that an order adds to a problem."""

    before: IntArray  # i4[E] ops, in the problem's own numbers, that have to end ...
    after: IntArray  # i4[E] ... before these start, each on the same device

    def __len__(self) -> int:
        return len(self.before)


def order_edges(before: list[int], after: list[int]) -> OrderEdges:
    """The edges of two lists, each edge once."""
    pairs = np.unique(np.array([before, after], dtype=np.int32).reshape(2, -1), axis=1)
    return OrderEdges(pairs[0], pairs[1])


NO_EDGES = order_edges([], [])


@dataclasses.dataclass(frozen=True)
class EdgedProblem:
    """A problem with order edges among its own."""

    problem: Problem  # its ops are in a topological order of all edges
    op_at: IntArray  # i4[N] its op i is op op_at[i] of the problem without order edges

    def renumbered(self, of_op: IntArray) -> IntArray:
        """i4[N] by this problem's ops, of what is known by those of the one without edges."""
        return np.ascontiguousarray(of_op[self.op_at])


def with_order_edges(problem: Problem, edges: OrderEdges) -> EdgedProblem:
    """Adds control edges: uses of a tensor of no bytes that `before` owns.

    Raises:
      ValueError: they close a cycle.
    """
    graph = problem.graph
    tensors, uses = _with_controls(graph, edges)
    graph = dataclasses.replace(
        graph_with(graph, tensors),
        use_tensor=uses[0].astype(np.int32),
        use_op=uses[1].astype(np.int32),
    )
    producer = graph.tensor_producer
    op_at = _topological(graph.num_ops, producer[graph.use_tensor], graph.use_op)
    number = np.empty(graph.num_ops, dtype=np.int32)
    number[op_at] = np.arange(graph.num_ops, dtype=np.int32)
    tensor_at = np.argsort(number[producer], kind="stable")
    tensor_number = np.empty(len(tensor_at), dtype=np.int32)
    tensor_number[tensor_at] = np.arange(len(tensor_at), dtype=np.int32)
    use_tensor, use_op = tensor_number[graph.use_tensor], number[graph.use_op]
    by_tensor = np.lexsort((use_op, use_tensor))
    shares = graph.tensor_shares
    tensors = {name: getattr(graph, name)[tensor_at] for name in OF_TENSOR}
    tensors["tensor_shares"] = np.where(shares < 0, -1, tensor_number[shares])[tensor_at]
    tensors["tensor_producer"] = number[producer][tensor_at]
    renumbered = OpGraph(
        op_names=[graph.op_names[op] for op in op_at.tolist()],
        op_types=[graph.op_types[op] for op in op_at.tolist()],
        use_tensor=use_tensor[by_tensor],
        use_op=use_op[by_tensor],
        op_persistent_bytes=graph.op_persistent_bytes[op_at],
        op_temp_bytes=graph.op_temp_bytes[op_at],
        colocation_group=graph.colocation_group[op_at],
        **{name: values.astype(getattr(graph, name).dtype) for name, values in tensors.items()},
    )
    return EdgedProblem(of_ops(dataclasses.replace(problem, graph=renumbered), op_at), op_at)


OF_TENSOR = (
    "tensor_producer",
    "tensor_output",
    "tensor_bytes",
    "tensor_alloc_bytes",
    "tensor_shares",
    "tensor_takes_over",
    "tensor_shape",
)


def graph_with(graph: OpGraph, tensors: Mapping[str, np.ndarray]) -> OpGraph:
    """The graph with other tensors, by the names in OF_TENSOR."""
    fields: dict[str, Any] = dict(tensors)
    return dataclasses.replace(graph, **fields)


def of_ops(problem: Problem, op_at: IntArray) -> Problem:
    """A problem whose op i is op op_at[i] of another one, but for the graph, which it keeps."""
    rank = problem.start_rank
    return dataclasses.replace(
        problem,
        op_seconds=problem.op_seconds[op_at],
        pinned_device=problem.pinned_device[op_at],
        executor=None if problem.executor is None else _executor(problem.executor, op_at),
        start_rank=None if rank is None else rank[op_at],
    )


def _with_controls(
    graph: OpGraph, edges: OrderEdges
) -> tuple[dict[str, np.ndarray], tuple[IntArray, IntArray]]:
    """The tensors of a graph with those that the edges need behind them; all distinct uses."""
    control = np.full(graph.num_ops, -1, dtype=np.int32)
    own = np.flatnonzero(graph.tensor_output == -1)
    control[graph.tensor_producer[own]] = own
    new = np.unique(edges.before[control[edges.before] < 0])
    control[new] = graph.num_tensors + np.arange(len(new), dtype=np.int32)
    added = {"tensor_producer": new, "tensor_output": -1, "tensor_shape": -1, "tensor_shares": -1}
    tensors = {}
    for name in OF_TENSOR:
        values = getattr(graph, name)
        more = np.empty((len(new), *values.shape[1:]), dtype=values.dtype)
        more[...] = added.get(name, 0)
        tensors[name] = np.concatenate([values, more])
    used = np.concatenate([graph.use_tensor, control[edges.before]]).astype(np.int64)
    uses = np.unique(used * graph.num_ops + np.concatenate([graph.use_op, edges.after]))
    use_tensor, use_op = np.divmod(uses, max(graph.num_ops, 1))
    return tensors, (use_tensor.astype(np.int32), use_op.astype(np.int32))


def _topological(size: int, source: IntArray, target: IntArray) -> IntArray:
    """i4[size]: each op after all it waits for, the lowest first; ValueError: there is a cycle."""
    sorted_ops = in_order(source, target, size, lowest_first=True)
    if len(sorted_ops) < size:
        raise ValueError(
            f"adding order edges: {size - len(sorted_ops)} of {size} ops wait for one another; "
            "wanted edges that close no cycle"
        )
    return np.array(sorted_ops, dtype=np.int32)


def _executor(executor: ExecutorModel, op_at: IntArray) -> ExecutorModel:
    return dataclasses.replace(
        executor,
        runs_inline=executor.runs_inline[op_at],
        op_slowdown=None if executor.op_slowdown is None else executor.op_slowdown[op_at],
        op_turn=None if executor.op_turn is None else executor.op_turn[:, op_at],
    )
