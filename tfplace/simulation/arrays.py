"""What the compiled simulation reads and writes: a problem in compressed rows, and scratch."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from graphs.compressed_rows import row_starts
from graphs.executor_model import ExecutorModel, wire
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem


class SimulationArrays(NamedTuple):
    """A problem as the simulation reads it.

    Attributes:
      op_seconds: f8[N, D].
      num_inputs: i4[N] tensors that the op uses.
      tensor_row: i4[N+1] the op's tensors are tensor_row[op] .. tensor_row[op + 1].
      producer: i4[T].
      tensor_bytes, tensor_alloc_bytes: i8[T].
      use_row: i4[T+1], use_op: i4[K*U]: the tensor's users, ascending; with an executor once for
        each of its K orders, by turn.
      sources: i4[K*S] the ops that use nothing, in the same orders.
      input_row: i4[N+1], input_tensor: i4[U]: the tensors that an op uses.
      persistent_bytes: i8[N].
      start_bytes: i8[N] what an op allocates when it starts: temp and all outputs.
      end_bytes: i8[N] what its end frees at once: temp and outputs that nobody uses.
      slots: i4[D]; latency, bandwidth: f8[D, D]; channels: i4[D, D, 2].
      sizes: i8[4] number of channels; most transfers that any placement can have; most items
        that one op's end makes ready, 0 without an executor; K, 1 without.
      send_seconds, receive_seconds: f8[D, D, 2] of Problem.executor, [0, 0, 2] without.
      runs_inline: b[N]; most_sends: i4[N] most transfers of an op's outputs; op_turn:
        i4[K*N]; empty without.
      op_slowdown: f8[N, D] for each busy device of those in shares_memory b[D, D]; empty without.
    """

    op_seconds: FloatArray
    num_inputs: IntArray
    tensor_row: IntArray
    producer: IntArray
    tensor_bytes: LongArray
    tensor_alloc_bytes: LongArray
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
    sizes: LongArray
    send_seconds: FloatArray
    receive_seconds: FloatArray
    runs_inline: np.ndarray
    most_sends: IntArray
    op_turn: IntArray
    op_slowdown: FloatArray
    shares_memory: np.ndarray


class Scratch(NamedTuple):
    """What one simulation writes; one thread at a time, reused from run to run.

    Attributes:
      pending: i4[N] inputs that are not there yet.
      holders: i4[T*D] what still needs a tensor on a device: users and, where it was made,
        transfers under way. All zero between runs; empty where memory is not tracked.
      running: i4[D]; memory, peak: i8[D] bytes.
      channel_free: f8[C] seconds.
      ready: i8[N + most sends] key heaps, one per device in ready[ready_row[d]:]; ready_count:
        i4[D].
      op_start, op_end: f8[N].
      end_time, end_key: pending ends, keyed by op.
      arrival_time, arrival_key: transfers under way, keyed by tensor * D + device.
      copy_time, copy_key: copies whose transfer is queued; the bytes are held from then on.
      log_key, log_time: i8[L], f8[L, 3] transfers in the order they were queued: start,
        release, arrival. L is 0 unless a schedule is wanted.
      counts: i8[5] ends, arrivals, copies, transfers, bytes transferred.
      wanted_by: i4[D] the last tensor that a device was found to want.
      tail: f8[N] longest path from an op's start to the end; empty where runs are not given up.
      work_left: f8[D] seconds of ops that have not started.
      bound: f8[1] what the makespan is at least.
      before: i4[N] the op that last ended on the op's device when it started, -1 for none.
      last_ended: i4[D] the op that last ended on a device.
      owed, owed_since: f8[D] what received tensors add to the next start, as of when.
      turns: i8[D, 2] numbers of the last item at the front and at the back of a device's queue.
      fresh: i8[F] what one op's end makes ready, a key heap; as `turns` only with an executor.
      first: i8[2] where the present order's users and ops begin.
    """

    pending: IntArray
    holders: IntArray
    running: IntArray
    memory: LongArray
    peak: LongArray
    channel_free: FloatArray
    ready: LongArray
    ready_row: IntArray
    ready_count: IntArray
    op_start: FloatArray
    op_end: FloatArray
    end_time: FloatArray
    end_key: LongArray
    arrival_time: FloatArray
    arrival_key: LongArray
    copy_time: FloatArray
    copy_key: LongArray
    log_key: LongArray
    log_time: FloatArray
    counts: LongArray
    wanted_by: IntArray
    tail: FloatArray
    work_left: FloatArray
    bound: FloatArray
    before: IntArray
    last_ended: IntArray
    owed: FloatArray
    owed_since: FloatArray
    turns: LongArray
    fresh: LongArray
    first: LongArray


def simulation_arrays(problem: Problem) -> SimulationArrays:
    """Lays out a problem for the simulation.

    Raises:
      ValueError: if the problem breaks one of the promises of the contract, section 6.
    """
    _check(problem)
    graph = problem.graph
    size = graph.num_ops
    turns = np.arange(size)[None] if problem.executor is None else problem.executor.turns()
    users = [_users(problem, turn) for turn in turns]
    use_op = users[0]
    use_tensor = np.sort(graph.use_tensor)
    by_op = np.lexsort((use_tensor, use_op))
    num_users = np.bincount(use_tensor, minlength=graph.num_tensors)
    num_inputs = np.bincount(use_op, minlength=size)
    by_turn = np.argsort(turns, axis=1, kind="stable")
    outputs = _sum_by(graph.tensor_producer, graph.tensor_alloc_bytes, size)
    unused = _sum_by(
        graph.tensor_producer, np.where(num_users == 0, graph.tensor_alloc_bytes, 0), size
    )
    most_transfers = int(np.minimum(num_users, problem.num_devices - 1).sum())
    num_channels = int(problem.link_channels.max(initial=-1)) + 1
    latency, rate, executor = _executor_arrays(problem, num_users)
    return SimulationArrays(
        op_seconds=np.ascontiguousarray(problem.op_seconds, dtype=np.float64),
        num_inputs=num_inputs.astype(np.int32),
        tensor_row=row_starts(graph.tensor_producer, size).astype(np.int32),
        producer=graph.tensor_producer.astype(np.int32),
        tensor_bytes=graph.tensor_bytes.astype(np.int64),
        tensor_alloc_bytes=graph.tensor_alloc_bytes.astype(np.int64),
        use_row=row_starts(use_tensor, graph.num_tensors).astype(np.int32),
        use_op=np.concatenate(users).astype(np.int32),
        sources=by_turn[num_inputs[by_turn] == 0].astype(np.int32),
        input_row=row_starts(use_op, size).astype(np.int32),
        input_tensor=use_tensor[by_op].astype(np.int32),
        persistent_bytes=graph.op_persistent_bytes.astype(np.int64),
        start_bytes=graph.op_temp_bytes + outputs,
        end_bytes=graph.op_temp_bytes + unused,
        slots=problem.device_slots.astype(np.int32),
        latency=np.ascontiguousarray(latency, dtype=np.float64),
        bandwidth=np.ascontiguousarray(rate, dtype=np.float64),
        channels=np.ascontiguousarray(problem.link_channels, dtype=np.int32),
        sizes=np.array(
            [num_channels, most_transfers, executor.most_fresh, len(turns)], dtype=np.int64
        ),
        send_seconds=executor.send_seconds,
        receive_seconds=executor.receive_seconds,
        runs_inline=executor.runs_inline,
        most_sends=executor.most_sends,
        op_turn=executor.op_turn,
        op_slowdown=executor.op_slowdown,
        shares_memory=executor.shares_memory,
    )


def _users(problem: Problem, turn: IntArray) -> IntArray:
    """i4[U]: the users of tensor after tensor, of each by turn."""
    graph = problem.graph
    order = np.lexsort((graph.use_op, turn[graph.use_op], graph.use_tensor))
    users: IntArray = graph.use_op[order]
    return users


class _ExecutorArrays(NamedTuple):
    send_seconds: FloatArray
    receive_seconds: FloatArray
    runs_inline: np.ndarray
    most_sends: IntArray
    most_fresh: int
    op_turn: IntArray
    op_slowdown: FloatArray
    shares_memory: np.ndarray


def _executor_arrays(
    problem: Problem, num_users: LongArray
) -> tuple[FloatArray, FloatArray, _ExecutorArrays]:
    """Latency and bytes per second of the wires, and what an executor adds."""
    latency, rate = problem.link_latency, problem.link_bytes_per_second
    executor = problem.executor
    if executor is None:
        none = np.zeros((0, 0, 2))
        no_ints = np.zeros(0, np.int32)
        empty = (np.zeros(0, bool), no_ints, 0, no_ints, *_contention_arrays(None))
        return latency, rate, _ExecutorArrays(none, none, *empty)
    producer, size = problem.graph.tensor_producer, problem.num_ops
    sends = _sum_by(producer, np.minimum(num_users, problem.num_devices - 1), size)
    fresh = _sum_by(producer, num_users, size) + sends
    arrays = _ExecutorArrays(
        np.ascontiguousarray(executor.send_seconds, dtype=np.float64),
        np.ascontiguousarray(executor.receive_seconds, dtype=np.float64),
        np.ascontiguousarray(executor.runs_inline, dtype=np.bool_),
        sends.astype(np.int32),
        int(fresh.max(initial=0)),
        executor.turns().ravel().astype(np.int32),
        *_contention_arrays(executor),
    )
    return (*wire(executor, latency, rate), arrays)


def _contention_arrays(executor: ExecutorModel | None) -> tuple[FloatArray, np.ndarray]:
    """What one busy device adds: all of op_slowdown if it is the only one that shares memory."""
    if executor is None or executor.op_slowdown is None or executor.shares_memory is None:
        return np.zeros((0, 0)), np.zeros((0, 0), bool)
    sharers = np.maximum(executor.shares_memory.sum(axis=1), 1)
    return (
        np.ascontiguousarray(executor.op_slowdown / sharers, dtype=np.float64),
        np.ascontiguousarray(executor.shares_memory, dtype=np.bool_),
    )


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


@numba.njit(cache=True, nogil=True)
def new_scratch(arrays: SimulationArrays, num_logged: int) -> Scratch:
    """Scratch for a problem; num_logged is sizes[1] where transfers are to be logged, else 0."""
    num_holders = len(arrays.producer) * len(arrays.slots)
    return _scratch(arrays, num_logged, num_holders, 0)


@numba.njit(cache=True, nogil=True)
def timing_scratch(arrays: SimulationArrays) -> Scratch:
    """Scratch for runs of which only the time counts and which may be given up at a limit."""
    return _scratch(arrays, 0, 0, len(arrays.op_seconds))


@numba.njit(cache=True, nogil=True)
def _scratch(
    arrays: SimulationArrays, num_logged: int, num_holders: int, num_tails: int
) -> Scratch:
    num_ops, num_devices = arrays.op_seconds.shape
    most = arrays.sizes[1]
    num_running = arrays.slots.sum()
    num_copies = most if num_holders > 0 else 0
    num_queued = num_ops + arrays.most_sends.sum()
    return Scratch(
        np.zeros(num_ops, dtype=np.int32),
        np.zeros(num_holders, dtype=np.int32),
        np.zeros(num_devices, dtype=np.int32),
        np.zeros(num_devices, dtype=np.int64),
        np.zeros(num_devices, dtype=np.int64),
        np.zeros(arrays.sizes[0], dtype=np.float64),
        np.empty(num_queued, dtype=np.int64),
        np.zeros(num_devices, dtype=np.int32),
        np.zeros(num_devices, dtype=np.int32),
        np.empty(num_ops, dtype=np.float64),
        np.empty(num_ops, dtype=np.float64),
        np.empty(num_running, dtype=np.float64),
        np.empty(num_running, dtype=np.int64),
        np.empty(most, dtype=np.float64),
        np.empty(most, dtype=np.int64),
        np.empty(num_copies, dtype=np.float64),
        np.empty(num_copies, dtype=np.int64),
        np.empty(num_logged, dtype=np.int64),
        np.empty((num_logged, 3), dtype=np.float64),
        np.zeros(5, dtype=np.int64),
        np.full(num_devices, -1, dtype=np.int32),
        np.zeros(num_tails, dtype=np.float64),
        np.zeros(num_devices, dtype=np.float64),
        np.zeros(1, dtype=np.float64),
        np.empty(num_ops, dtype=np.int32),
        np.zeros(num_devices, dtype=np.int32),
        np.zeros(num_devices, dtype=np.float64),
        np.zeros(num_devices, dtype=np.float64),
        np.zeros((num_devices, 2), dtype=np.int64),
        np.empty(arrays.sizes[2], dtype=np.int64),
        np.zeros(2, dtype=np.int64),
    )
