"""What the compiled simulation reads beside SimulationArrays where a problem has an executor."""

from typing import NamedTuple

import numpy as np

from graphs.executor_model import ExecutorModel, wire
from graphs.op_graph import BoolArray, FloatArray, IntArray
from graphs.problem import Problem


class ExecutorArrays(NamedTuple):
    """Problem.executor as rules 7 to 10 read it.

    Attributes:
      op_turn: i4[K, N] the op's place in each of the K orders.
      use_op: i4[K, U] as SimulationArrays.use_op, but each tensor's users by turn.
      sources: i4[K, S] the ops that use nothing, by turn.
      runs_inline: b[N].
      send_seconds: f8[D, D, 2] what a transfer takes of its sender: fixed, and per byte.
      receive_seconds: f8[D, D, 2] what it takes of its receiver.
      op_slowdown: f8[N, D] the share by which an op takes longer for each busy device among those
        that share its device's memory; [0, 0] where rule 10 does not hold.
      shares_memory: b[D, D]; as op_slowdown.
      most_fresh: the most items that one op's end can make ready.
    """

    op_turn: IntArray
    use_op: IntArray
    sources: IntArray
    runs_inline: BoolArray
    send_seconds: FloatArray
    receive_seconds: FloatArray
    op_slowdown: FloatArray
    shares_memory: BoolArray
    most_fresh: int


def executor_arrays(problem: Problem) -> ExecutorArrays | None:
    """Lays out a problem's executor; None where it has none."""
    executor, graph = problem.executor, problem.graph
    if executor is None:
        return None
    turns = executor.turns()
    by_turn = np.argsort(turns, axis=1, kind="stable")
    has_inputs = np.isin(np.arange(graph.num_ops), graph.use_op)
    num_sources = int((~has_inputs).sum())
    num_users = np.bincount(graph.use_tensor, minlength=graph.num_tensors)
    fresh_of_tensor = num_users + np.minimum(num_users, problem.num_devices - 1)
    fresh_of_op = np.zeros(graph.num_ops, dtype=np.int64)
    np.add.at(fresh_of_op, graph.tensor_producer, fresh_of_tensor)
    slowdown, shared = _contention(executor)
    return ExecutorArrays(
        op_turn=turns.astype(np.int32),
        use_op=np.stack([_users_by_turn(problem, turn) for turn in turns]),
        sources=by_turn[~has_inputs[by_turn]].reshape(-1, num_sources).astype(np.int32),
        runs_inline=np.ascontiguousarray(executor.runs_inline, dtype=np.bool_),
        send_seconds=np.ascontiguousarray(executor.send_seconds, dtype=np.float64),
        receive_seconds=np.ascontiguousarray(executor.receive_seconds, dtype=np.float64),
        op_slowdown=slowdown,
        shares_memory=shared,
        most_fresh=int(fresh_of_op.max(initial=0)),
    )


def wires(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Latency and bytes per second f8[D, D] each; rule 9 takes off what the two ends work."""
    latency, rate = problem.link_latency, problem.link_bytes_per_second
    if problem.executor is not None:
        latency, rate = wire(problem.executor, latency, rate)
    return (
        np.ascontiguousarray(latency, dtype=np.float64),
        np.ascontiguousarray(rate, dtype=np.float64),
    )


def _users_by_turn(problem: Problem, turn: IntArray) -> IntArray:
    """i4[U]: the users of tensor after tensor, of each by turn."""
    graph = problem.graph
    order = np.lexsort((graph.use_op, turn[graph.use_op], graph.use_tensor))
    return graph.use_op[order].astype(np.int32)


def _contention(executor: ExecutorModel) -> tuple[FloatArray, BoolArray]:
    """What one busy device adds: all of op_slowdown if it is the only one that shares memory."""
    if executor.op_slowdown is None or executor.shares_memory is None:
        return np.zeros((0, 0)), np.zeros((0, 0), dtype=np.bool_)
    sharers = np.maximum(executor.shares_memory.sum(axis=1), 1)
    return (
        np.ascontiguousarray(executor.op_slowdown / sharers, dtype=np.float64),
        np.ascontiguousarray(executor.shares_memory, dtype=np.bool_),
    )
