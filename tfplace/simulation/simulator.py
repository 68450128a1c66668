"""Predicts the makespan and peak memory of placements (the contract, section 6).

The contract is `tfplace/docs/contract.md`.
"""

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem
from tfplace.simulation.arrays import simulation_arrays
from tfplace.simulation.kernel import simulate, simulate_batch
from tfplace.simulation.schedule import Schedule, Transfers
from tfplace.simulation.scratch import TRANSFERS, Scratch, new_scratch


class Simulator:
    """Section 6 of the contract for one problem; may be called from any thread.

    Attributes:
      problem: what is simulated.
      arrays: the problem as compiled code reads it.
    """

    def __init__(self, problem: Problem, num_threads: int | None = None) -> None:
        """Lays out the problem.

        Args:
          num_threads: threads of `run_many`; as many as this process may use cores if None.

        Raises:
          ValueError: if the problem breaks one of the promises of the contract, section 6.
        """
        self.problem = problem
        self.arrays = simulation_arrays(problem)
        self._of_thread = threading.local()
        self._num_threads = num_threads or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._num_threads, "simulator")

    def run(self, device_of_op: IntArray) -> tuple[float, LongArray]:
        """Makespan in seconds (inf where an op has no kernel) and peak bytes i8[D].

        Args:
          device_of_op: i4[N].

        Raises:
          ValueError: if that is not a device for each op.
        """
        placement = self._checked(device_of_op, 1)
        scratch = self._scratch()
        return float(simulate(self.arrays, scratch, placement, np.inf)), scratch.peak.copy()

    def run_many(self, device_of_op: IntArray) -> tuple[FloatArray, LongArray]:
        """Makespans f8[B] and peak bytes i8[B, D] of placements i4[B, N], on all cores."""
        placements = self._checked(device_of_op, 2)
        makespans = np.empty(len(placements), dtype=np.float64)
        peaks = np.empty((len(placements), self.problem.num_devices), dtype=np.int64)
        num_parts = min(self._num_threads, len(placements))
        bounds = [len(placements) * part // max(num_parts, 1) for part in range(num_parts + 1)]
        parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
        # The caller's thread takes the first part: a single placement never changes threads.
        others = [
            self._pool.submit(self._run_part, placements[part], makespans[part], peaks[part])
            for part in parts[1:]
        ]
        for part in parts[:1]:
            self._run_part(placements[part], makespans[part], peaks[part])
        for other in others:
            other.result()
        return makespans, peaks

    def _run_part(self, placements: IntArray, makespans: FloatArray, peaks: LongArray) -> None:
        simulate_batch(self.arrays, self._scratch(), placements, makespans, peaks)

    def _scratch(self) -> Scratch:
        """This thread's own."""
        if not hasattr(self._of_thread, "scratch"):
            self._of_thread.scratch = new_scratch(self.arrays)
        return self._of_thread.scratch

    def schedule(self, device_of_op: IntArray) -> Schedule:
        """When each op runs and each tensor moves; under an executor's first order.

        Raises:
          ValueError: if an op lies where it has no kernel: there is no schedule then.
        """
        schedule = self.run_in_full(device_of_op)[2]
        if schedule is None:
            raise ValueError(
                "scheduling a placement: an op never ends; place ops only where "
                "Problem.allowed() says so, on devices that are linked"
            )
        return schedule

    def run_in_full(self, device_of_op: IntArray) -> tuple[float, LongArray, Schedule | None]:
        """What `run` returns, and the schedule; None for that where an op never ends."""
        placement = self._checked(device_of_op, 1)
        scratch = new_scratch(self.arrays, logs=True)
        makespan = float(simulate(self.arrays, scratch, placement, np.inf))
        if np.isinf(makespan):
            return makespan, scratch.peak, None
        schedule = Schedule(
            makespan=float(scratch.op_end.max(initial=0.0)),
            device_of_op=placement,
            op_start=scratch.op_start,
            op_end=scratch.op_end,
            shares=scratch.shares,
            transfers=self._transfers(scratch, placement),
            peak_bytes=scratch.peak,
        )
        return makespan, scratch.peak, schedule

    def _transfers(self, scratch: Scratch, device_of_op: IntArray) -> Transfers:
        """The log of a run as a value."""
        graph, num_devices = self.problem.graph, self.problem.num_devices
        count = int(scratch.counts[TRANSFERS])
        tensor = (scratch.log_key[:count] // num_devices).astype(np.int32)
        times = scratch.log_time[:count]
        return Transfers(
            tensor=tensor,
            source=device_of_op[graph.tensor_producer[tensor]],
            target=(scratch.log_key[:count] % num_devices).astype(np.int32),
            start=times[:, 0].copy(),
            release=times[:, 1].copy(),
            arrival=times[:, 2].copy(),
            bytes=graph.tensor_bytes[tensor],
        )

    def _checked(self, device_of_op: IntArray, ndim: int) -> IntArray:
        """The placement as compiled code wants it; a bad index there would write anywhere."""
        placement = np.ascontiguousarray(device_of_op, dtype=np.int32)
        wanted = (self.problem.num_ops,)
        if placement.ndim != ndim or placement.shape[ndim - 1 :] != wanted:
            raise ValueError(
                f"simulating a placement: shape {placement.shape} found, "
                f"{'[B, N]' if ndim == 2 else '[N]'} with N = {wanted[0]} ops wanted"
            )
        if placement.size and not 0 <= placement.min() <= placement.max() < len(self.arrays.slots):
            raise ValueError(
                f"simulating a placement: devices {placement.min()} to {placement.max()} found, "
                f"0 to {len(self.arrays.slots) - 1} wanted"
            )
        return placement
