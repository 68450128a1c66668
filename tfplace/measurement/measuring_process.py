"""A child process that runs graphs, seen from its parent: whatever happens there is a value."""

import contextlib
import dataclasses
import logging
import math
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from graphs.building.op_outputs import of_unknown_op
from graphs.cluster import Cluster
from graphs.clusters.discovery import gpu_split_bytes
from graphs.effects import without_effects
from graphs.errors import ClusterError
from graphs.host.child import Child, start_child
from graphs.host.how_it_ended import file_tail
from graphs.host.own_network import environment
from graphs.loading.runnable_copy import serialized_without_effects
from graphs.problem import Infeasible
from graphs.protos import Pickled
from tfplace.measurement.allocator import DevicePeak
from tfplace.measurement.device_name import device_key
from tfplace.measurement.training_run import (
    MemoryRequest,
    PrepareRequest,
    Request,
    RuntimeConfig,
    StepLimits,
    TrainingRun,
)
from tfplace.measurement.workers import NO_WORKERS, WorkerPool, start_workers

_LOGGER = logging.getLogger(__name__)
_CHILD = "tfplace.measurement.measuring_child"
_VMSTAT = Path("/proc/vmstat")
_SECONDS_TO_START = 60.0  # of all workers together
_SECONDS_TO_END = 1.0  # a lost task's process may take a moment to be gone
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_OUT_OF_MEMORY = ("bad_alloc", "OOM when allocating", "Cannot allocate memory", "bfc_allocator.cc")


class RunFailedError(Exception):
    """Carries the Infeasible, `why`, out of a sequence of requests."""

    def __init__(self, why: Infeasible) -> None:
        super().__init__(why.message)
        self.why = why


class MeasuringProcess(contextlib.AbstractContextManager["MeasuringProcess"]):
    """Starts the child at the first run, and again for the next after one it did not survive.

    Where the cluster's devices are `workers:N` without addresses, the worker processes are
    this object's as well, and are started anew with the child: a worker may hang or crash
    with a placement. They give their ops no more memory than their devices have. The context
    manager ends all of them.

    Attributes:
      num_starts: how often the child was started.
      was_killed: whether somebody else ended the process that ended last.
    """

    def __init__(
        self,
        cluster: Cluster,
        soft_placement: bool = False,
        all_seconds: float = math.inf,
        executor_threads: int | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
          cluster: where the devices are.
          soft_placement: see RuntimeConfig.
          all_seconds: the longest that all requests may take, from now on; what runs then is
            ended, and what is asked later is a "timeout".
          executor_threads: of each worker that is started; None: as `start_workers` has it.
        """
        self._executor_threads = executor_threads
        self._all_seconds, self._end = all_seconds, time.monotonic() + all_seconds
        self._cluster = cluster
        self._soft_placement = soft_placement
        self._child: Child | None = None
        self._pool: WorkerPool | None = None
        self._oom_kills = 0
        self.num_starts = 0
        self.was_killed = False

    def ask(self, request: Request, limits: StepLimits) -> Pickled:
        """The child's answer.

        Raises:
          RunFailedError: `request` gave an Infeasible.
          ClusterError: as for `request`.
        """
        seconds = limits.timeout_seconds * max(getattr(request, "num_steps", 1), 1)
        if isinstance(request, PrepareRequest):
            seconds = limits.prepare_timeout_seconds
        answer = self.request(request, seconds)
        if isinstance(answer, Infeasible):
            raise RunFailedError(answer)
        return answer

    def request(self, request: Request, timeout_seconds: float) -> Pickled:
        """The child's answer, or Infeasible.

        After reason "crash", "timeout" or a "memory" that killed the child, `alive` is False
        and prepared runs are gone: a request that needs one is a "crash" as well.

        Raises:
          ClusterError: the cluster's workers could not be started for the first time.
        """
        if self.seconds_left <= 0.0:
            return self._closed_after(self._out_of_time())
        if not self.alive and self.num_starts and not isinstance(request, PrepareRequest):
            return self._closed_after(self._how_it_ended())
        try:
            child = self._started()
        except (ClusterError, ConnectionError) as error:
            if self.seconds_left <= 0.0:
                return self._closed_after(self._out_of_time())
            if not self.num_starts:
                raise
            return Infeasible("crash", f"starting anew after a crash: {error}")
        if isinstance(request, PrepareRequest):
            request = self._without_effects(request)
        try:
            seconds, pool = min(timeout_seconds, self.seconds_left), self._pool or NO_WORKERS
            kind, *answer = child.ask(request, seconds, pool.all_alive)
        except TimeoutError:
            failure = Infeasible("timeout", f"no answer within {timeout_seconds:g} s")
            return self._closed_after(failure if self.seconds_left > 0.0 else self._out_of_time())
        except EOFError:
            return self._closed_after(self._how_it_ended())
        except BaseException:  # Ctrl-C: what runs there must not go on
            self.close()
            raise
        if kind == "lost":
            return self._closed_after(self._how_it_was_lost(*answer))
        if kind == "ok":
            return answer[0]
        reason, message = answer
        return Infeasible(reason, of_unknown_op(message))

    def _without_effects(self, request: PrepareRequest) -> PrepareRequest:
        """The same run; what it would do outside of the process is cut out of it."""
        run, graph_def = request.run, request.graph_def
        if graph_def:
            graph_def = serialized_without_effects(graph_def)
        if isinstance(run, TrainingRun) and run.source_graph is not None:
            run = dataclasses.replace(run, source_graph=without_effects(run.source_graph))
        return dataclasses.replace(request, graph_def=graph_def, run=run)

    def peaks(self, reset: bool, timeout_seconds: float) -> Mapping[str, DevicePeak]:
        """{device: its peak since the last reset}, where allocators count it.

        Args:
          reset: whether peaks begin anew afterwards.
          timeout_seconds: the longest wait for one process.
        """
        names = self._cluster.device_names
        if not self.num_starts:
            self._started()
        if self._pool is not None:
            of_task = self._pool.peaks(reset, timeout_seconds)
            peaks = {name: of_task[device_key(name).task] for name in names}
            return {name: peak for name, peak in peaks.items() if peak is not None}
        answer = self.request(MemoryRequest(reset), timeout_seconds)
        return {} if isinstance(answer, Infeasible) else dict(answer)

    @property
    def process_ids(self) -> list[int]:
        """Of this process and of all that it started here for measuring."""
        children = [*([self._child] if self._child else []), *(self._pool or NO_WORKERS).children]
        return [os.getpid(), *(child.process.pid for child in children)]

    @property
    def owns_all_tasks(self) -> bool:
        """Whether no task of the cluster was started by somebody else."""
        return not any(device.address for device in self._cluster.devices)

    @property
    def alive(self) -> bool:
        """Whether the child and its workers run, so that what was prepared is still there."""
        runs = self._child is not None and self._child.process.poll() is None
        return runs and (self._pool or NO_WORKERS).all_alive()

    def close(self) -> None:
        """Ends the child and the workers that were started for it; may be called twice."""
        if self._child is not None:
            self._child.end()
            self._child = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def seconds_left(self) -> float:
        """Of all_seconds; below 0 where they are over."""
        return self._end - time.monotonic()

    def end_after(self, seconds: float) -> None:
        """All requests together may take so long from now on, if that is less than is left."""
        if seconds < self.seconds_left:
            self._all_seconds, self._end = max(seconds, 0.0), time.monotonic() + seconds

    def _out_of_time(self) -> Infeasible:
        had = f"the {self._all_seconds:.0f} s for real runs were used up"
        return Infeasible("timeout", had if self._all_seconds >= 0.5 else "no time was left for it")

    def _closed_after(self, failure: Infeasible) -> Infeasible:
        self.close()
        return failure

    def _started(self) -> Child:
        if self._child is None or not self.alive:
            self.close()
            try:
                network = environment(os.getpid()) if self._has_workers else {}
                self._child = start_child(_CHILD, environment=network)
                self._child.connection.send(self._runtime())
            except BaseException:
                self.close()
                raise
            self._oom_kills = _oom_kills()
            self.num_starts += 1
        return self._child

    @property
    def _has_workers(self) -> bool:
        """Whether the devices are tasks that are started here."""
        devices = self._cluster.devices
        return any(device_key(each.name).job for each in devices) and not any(
            each.address for each in devices
        )

    def _runtime(self) -> RuntimeConfig:
        devices = self._cluster.devices
        names = [device.name for device in devices]
        keys = [device_key(name) for name in names]
        addresses = [device.address for device in devices]
        if self._has_workers:
            started = time.monotonic()
            limit = {key.task: d.memory_bytes for key, d in zip(keys, devices, strict=True)}
            memory_bytes = [limit.get(task, 0) for task in range(max(limit) + 1)]
            seconds = min(_SECONDS_TO_START, max(self.seconds_left, 0.0))
            self._pool = start_workers(
                len(memory_bytes), seconds, memory_bytes, self._executor_threads
            )
            _LOGGER.info("started workers in %.1f s", time.monotonic() - started)
            addresses = [self._pool.addresses[key.task] for key in keys]
        split = gpu_split_bytes(self._cluster)
        return RuntimeConfig(names, addresses, self._soft_placement, split)

    def _how_it_ended(self) -> Infeasible:
        """Why nothing answers any more: a worker's end, or the child's."""
        if not (self._pool or NO_WORKERS).all_alive():
            return self._how_it_was_lost("it does not run any more")
        if self._child is None:
            return Infeasible("crash", "the measuring process was ended; prepare the run again")
        self.was_killed = -self._child.process.wait() in _KILLS
        message = f"the measuring process ended, {self._child.end_text()}"
        return self._failure(file_tail(self._child.stderr), message)

    def _how_it_was_lost(self, message: str) -> Infeasible:
        """A task of the cluster is gone; where it is one of ours, how it ended."""
        ended = (self._pool or NO_WORKERS).ended(_SECONDS_TO_END)
        # Of a task that somebody else started one can't know.
        self.was_killed = all(-child.process.wait() in _KILLS for child in ended.values())
        said = " ".join(file_tail(child.stderr) for child in ended.values())
        causes = [f"worker {task} ended, {child.end_text()}" for task, child in ended.items()]
        cause = "; ".join(causes) or message
        return self._failure(said, f"a task of the cluster was lost: {cause}")

    def _failure(self, said: str, message: str) -> Infeasible:
        """Tells want of memory, by the kernel or by what a process said, from other crashes."""
        lacked_memory = _oom_kills() > self._oom_kills or any(t in said for t in _OUT_OF_MEMORY)
        return Infeasible("memory" if lacked_memory else "crash", message)


def _oom_kills() -> int:
    """How many processes the kernel has killed for want of memory; 0 where it does not say."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
