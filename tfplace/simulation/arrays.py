"""What the compiled simulation reads: a problem in compressed rows."""

from typing import NamedTuple

import numpy as np

from graphs.executor_model import ExecutorModel, wire
from graphs.graph_edges import row_starts
from graphs.op_graph import BoolArray, FloatArray, IntArray, LongArray, OpGraph
from graphs.problem import Problem

# What the compiled simulation reads beside SimulationArrays where a problem has an executor.


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
      sends_first: b[D] the devices whose sends go before all else.
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
    sends_first: BoolArray
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
    # The users of tensor after tensor, of each by turn.
    orders = [np.lexsort((graph.use_op, turn[graph.use_op], graph.use_tensor)) for turn in turns]
    slowdown, shared = _contention(executor)
    return ExecutorArrays(
        # Laid out alike always: for another layout Numba compiles everything once more.
        op_turn=np.ascontiguousarray(turns, dtype=np.int32),
        use_op=np.ascontiguousarray(graph.use_op[np.stack(orders)], dtype=np.int32),
        sources=by_turn[~has_inputs[by_turn]].reshape(-1, num_sources).astype(np.int32),
        runs_inline=np.ascontiguousarray(executor.runs_inline, dtype=np.bool_),
        send_seconds=np.ascontiguousarray(executor.send_seconds, dtype=np.float64),
        receive_seconds=np.ascontiguousarray(executor.receive_seconds, dtype=np.float64),
        op_slowdown=slowdown,
        shares_memory=shared,
        sends_first=np.zeros(problem.num_devices, dtype=np.bool_)
        if executor.sends_first is None
        else np.ascontiguousarray(executor.sends_first, dtype=np.bool_),
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


def _contention(executor: ExecutorModel) -> tuple[FloatArray, BoolArray]:
    """What one busy device adds: all of op_slowdown if it is the only one that shares memory."""
    if executor.op_slowdown is None or executor.shares_memory is None:
        return np.zeros((0, 0)), np.zeros((0, 0), dtype=np.bool_)
    sharers = np.maximum(executor.shares_memory.sum(axis=1), 1)
    return (
        np.ascontiguousarray(executor.op_slowdown / sharers, dtype=np.float64),
        np.ascontiguousarray(executor.shares_memory, dtype=np.bool_),
    )


class SimulationArrays(NamedTuple):
    """A problem as the simulation reads it.

    Attributes:
      op_seconds: f8[N, D].
      num_inputs: i4[N] tensors that the op uses.
      tensor_row: i4[N+1] the op's tensors are tensor_row[op] .. tensor_row[op + 1].
      producer: i4[T].
      tensor_bytes: i8[T].
      tensor_alloc_bytes: i8[T].
      tensor_shares: i4[T] as OpGraph.tensor_shares; -1 too where nothing uses or keeps it.
      takes_over: bool[T] as OpGraph.tensor_takes_over, of what may.
      may_take: bool[N] whether an output of the op may take over a buffer.
      kept: i4[..] the tensors that share their own, ascending.
      use_row: i4[T+1] the tensor's users are use_op[use_row[tensor] : use_row[tensor + 1]].
      use_op: i4[U] each tensor's users, ascending; with an executor by turn in its first order.
      sources: i4[S] the ops that use nothing, ascending.
      input_row: i4[N+1] as tensor_row, for input_tensor.
      input_tensor: i4[U] the tensors that an op uses.
      persistent_bytes: i8[N].
      start_bytes: i8[N] what an op allocates when it starts: temp and all outputs.
      end_bytes: i8[N] what its end frees at once: temp and outputs that nobody uses.
      slots: i4[D]; not more than all items that could take one.
      latency: f8[D, D] seconds; with an executor of the wire alone (rule 9).
      bandwidth: f8[D, D] bytes per second; as latency.
      channels: i4[D, D, 2]; -1 where the link holds none.
      queue_room: i4[N] the most items that an op puts into its device's queue: itself and, with an
        executor, its sends.
      start_rank: i4[N] as Problem.start_rank; empty where it has none.
      num_channels: how many channels there are.
      most_transfers: the most transfers that any placement can have.
      executor: what rules 7 to 10 need; None where rules 1 to 6 hold alone. Compiled code is made
        for one or the other.
      no_executor: 0 where `executor` is None, else None.
    """

    op_seconds: FloatArray
    num_inputs: IntArray
    tensor_row: IntArray
    producer: IntArray
    tensor_bytes: LongArray
    tensor_alloc_bytes: LongArray
    tensor_shares: IntArray
    takes_over: BoolArray
    may_take: BoolArray
    kept: IntArray
    use_row: IntArray
    use_op: IntArray
    sources: IntArray
    input_row: IntArray
    input_tensor: IntArray
    persistent_bytes: LongArray
    start_bytes: LongArray
    end_bytes: LongArray
    slots: IntArray
    latency: FloatArray
    bandwidth: FloatArray
    channels: IntArray
    queue_room: IntArray
    start_rank: IntArray
    num_channels: int
    most_transfers: int
    executor: ExecutorArrays | None
    no_executor: int | None


def simulation_arrays(problem: Problem) -> SimulationArrays:
    """Lays out a problem for the simulation.

    Raises:
      ValueError: if the problem breaks one of the promises of the contract, section 6.
    """
    _check(problem)
    graph = problem.graph
    size = graph.num_ops
    executor = executor_arrays(problem)
    use_tensor = np.sort(graph.use_tensor)
    if executor is not None:
        use_op = executor.use_op[0]
    else:
        use_op = graph.use_op[np.lexsort((graph.use_op, graph.use_tensor))]
    by_op = np.lexsort((use_tensor, use_op))
    num_users = np.bincount(use_tensor, minlength=graph.num_tensors)
    num_inputs = np.bincount(use_op, minlength=size)
    outputs = _sum_by(graph.tensor_producer, graph.tensor_alloc_bytes, size)
    shares, is_held = _shares(graph, num_users)
    unused = _sum_by(graph.tensor_producer, np.where(is_held, 0, graph.tensor_alloc_bytes), size)
    is_kept = shares == np.arange(graph.num_tensors)
    takes_over = graph.tensor_takes_over & (shares >= 0) & ~is_kept
    most_transfers = np.minimum(num_users, problem.num_devices - 1)
    queue_room = np.ones(size, dtype=np.int32)
    if executor is not None:
        queue_room += _sum_by(graph.tensor_producer, most_transfers, size).astype(np.int32)
    latency, bandwidth = wires(problem)
    return SimulationArrays(
        op_seconds=np.ascontiguousarray(problem.op_seconds, dtype=np.float64),
        num_inputs=num_inputs.astype(np.int32),
        tensor_row=row_starts(graph.tensor_producer, size).astype(np.int32),
        producer=graph.tensor_producer.astype(np.int32),
        tensor_bytes=graph.tensor_bytes.astype(np.int64),
        tensor_alloc_bytes=graph.tensor_alloc_bytes.astype(np.int64),
        tensor_shares=shares,
        takes_over=takes_over,
        kept=np.flatnonzero(is_kept).astype(np.int32),
        may_take=np.bincount(graph.tensor_producer[takes_over], minlength=size) > 0,
        use_row=row_starts(use_tensor, graph.num_tensors).astype(np.int32),
        use_op=use_op.astype(np.int32),
        sources=np.flatnonzero(num_inputs == 0).astype(np.int32),
        input_row=row_starts(use_op, size).astype(np.int32),
        input_tensor=use_tensor[by_op].astype(np.int32),
        persistent_bytes=graph.op_persistent_bytes.astype(np.int64),
        start_bytes=graph.op_temp_bytes + outputs,
        end_bytes=graph.op_temp_bytes + unused,
        slots=np.minimum(problem.device_slots, queue_room.sum()).astype(np.int32),
        latency=latency,
        bandwidth=bandwidth,
        channels=np.ascontiguousarray(problem.link_channels, dtype=np.int32),
        queue_room=queue_room,
        start_rank=_start_rank(problem),
        num_channels=int(problem.link_channels.max(initial=-1)) + 1,
        most_transfers=int(most_transfers.sum()),
        executor=executor,
        no_executor=0 if executor is None else None,
    )


def _shares(graph: OpGraph, num_users: LongArray) -> tuple[IntArray, BoolArray]:
    """Whose buffer each tensor is that is used or kept; which are needed after their op."""
    is_held = (num_users > 0) | (graph.tensor_shares == np.arange(graph.num_tensors))
    shares = np.where(is_held, graph.tensor_shares, -1).astype(np.int32)
    is_held[shares[shares >= 0]] = True
    return shares, is_held


def _start_rank(problem: Problem) -> IntArray:
    rank = problem.start_rank
    if rank is None:
        return np.empty(0, dtype=np.int32)
    if rank.shape != (problem.num_ops,) or np.any(rank < 0):
        raise ValueError(
            f"laying out a problem for the simulator: start_rank of shape {rank.shape} found, "
            f"({problem.num_ops},) with numbers of at least 0 wanted"
        )
    return rank.astype(np.int32)


def _check(problem: Problem) -> None:
    """Raises ValueError where the simulation would never end or mean nothing."""
    graph = problem.graph
    producer = graph.tensor_producer
    off_diagonal = ~np.eye(problem.num_devices, dtype=bool)
    promises = (
        (np.all(producer[graph.use_tensor] < graph.use_op), "a use comes before its producer"),
        (np.all(np.diff(producer) >= 0), "tensor_producer is not ascending"),
        (np.all(problem.op_seconds >= 0), "op_seconds is negative or not a number"),
        (np.all(problem.device_slots >= 1), "device_slots is below 1"),
        (np.all(problem.link_latency[off_diagonal] >= 0), "link_latency is negative"),
        (
            np.all(problem.link_bytes_per_second[off_diagonal] > 0),
            "link_bytes_per_second is not positive",
        ),
    )
    for kept, broken in promises:
        if not kept:
            raise ValueError(
                f"laying out a problem for the simulator: {broken}; "
                "tfplace/docs/contract.md, section 6, says what the arrays have to hold"
            )


def _sum_by(owners: IntArray, amounts: LongArray, size: int) -> LongArray:
    """i8[size]: the exact sum of each owner's amounts."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, owners, amounts)
    return sums
