"""A child process that runs graphs, seen from its parent: whatever happens there is a value."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.cluster import Cluster
from graphs.clusters.discovery import gpu_split_bytes
from graphs.errors import ClusterError
from graphs.host.child import Child, start_child
from graphs.placement import Infeasible
from tfplace.measurement.device_name import device_key
from tfplace.measurement.training_run import (
    MemoryRequest,
    PrepareRequest,
    Request,
    RunMemory,
    RuntimeConfig,
)
from tfplace.measurement.workers import NO_WORKERS, WorkerPool, start_workers

_LOGGER = logging.getLogger(__name__)
_CHILD = "tfplace.measurement.measuring_child"
_VMSTAT = Path("/proc/vmstat")
_SECONDS_TO_END = 1.0  # a lost task's process may take a moment to be gone
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_OUT_OF_MEMORY = ("bad_alloc", "OOM when allocating", "Cannot allocate memory")


class MeasuringProcess(contextlib.AbstractContextManager["MeasuringProcess"]):
    """Starts the child at the first run, and again for the next after one it did not survive.

    Where the cluster's devices are `workers:N` without addresses, the worker processes are
    this object's as well, and are started anew with the child: a worker may hang or crash
    with a placement. They give their ops no more memory than their devices have. Use it as a
    context manager.
    """

    def __init__(self, cluster: Cluster, soft_placement: bool = False) -> None:
        self._cluster = cluster
        self._soft_placement = soft_placement
        self._child: Child | None = None
        self._pool: WorkerPool | None = None
        self._oom_kills = 0
        self.num_starts = 0
        self.was_killed = False  # whether somebody else ended what ended last

    def request(self, request: Request, timeout_seconds: float) -> Any:
        """The child's answer, or Infeasible.

        After reason "crash", "timeout" or a "memory" that killed the child, `alive` is False
        and prepared runs are gone: a request that needs one is a "crash" as well.

        Raises:
          ClusterError: the cluster's workers could not be started for the first time.
        """
        if not self.alive and self.num_starts and not isinstance(request, PrepareRequest):
            failure = self._how_it_ended()
            self.close()
            return failure
        try:
            child = self._started()
        except (ClusterError, ConnectionError) as error:
            if not self.num_starts:
                raise
            return Infeasible("crash", f"starting anew after a crash: {error}")
        try:
            answer = child.ask(request, timeout_seconds)
        except TimeoutError:
            self.close()
            return Infeasible("timeout", f"no answer within {timeout_seconds:g} s")
        except EOFError:
            failure = self._how_it_ended()
            self.close()
            return failure
        except BaseException:  # Ctrl-C: what runs there must not go on
            self.close()
            raise
        if answer[0] == "ok":
            return answer[1]
        if answer[0] == "lost":
            failure = self._how_it_was_lost(answer[1])
            self.close()
            return failure
        return Infeasible(answer[1], answer[2])

    def memory_use(self, reset: bool, timeout_seconds: float) -> Mapping[str, RunMemory]:
        """{device: use} since the last reset, of the devices whose allocators count it.

        Args:
          reset: whether peaks begin anew afterwards.
          timeout_seconds: the longest wait for one process.
        """
        names = self._cluster.device_names
        if self._pool is not None:
            of_task = self._pool.memory_use(reset, timeout_seconds)
            uses = {name: of_task[device_key(name).task] for name in names}
            return {name: use for name, use in uses.items() if use is not None}
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

    def _started(self) -> Child:
        if self._child is None or not self.alive:
            self.close()
            try:
                self._child = start_child(_CHILD)
                self._child.connection.send(self._runtime())
            except BaseException:
                self.close()
                raise
            self._oom_kills = _oom_kills()
            self.num_starts += 1
        return self._child

    def _runtime(self) -> RuntimeConfig:
        devices = self._cluster.devices
        addresses = [device.address for device in devices]
        tasks = sorted({device_key(d.name).task for d in devices if device_key(d.name).job})
        if tasks and not any(addresses):
            started = time.monotonic()
            limit = {device_key(d.name).task: d.memory_bytes for d in devices}
            memory_bytes = [limit.get(task, 0) for task in range(tasks[-1] + 1)]
            self._pool = start_workers(tasks[-1] + 1, memory_bytes=memory_bytes)
            _LOGGER.info("started workers in %.1f s", time.monotonic() - started)
            addresses = [self._pool.addresses[device_key(d.name).task] for d in devices]
        names = [device.name for device in devices]
        return RuntimeConfig(
            names,
            addresses,
            _num_logical_cpus(names),
            self._soft_placement,
            gpu_split_bytes(self._cluster),
        )

    def _how_it_ended(self) -> Infeasible:
        """Why nothing answers any more: a worker's end, or the child's."""
        if not (self._pool or NO_WORKERS).all_alive():
            return self._how_it_was_lost("it does not run any more")
        if self._child is None:
            return Infeasible("crash", "the measuring process was ended; prepare the run again")
        status = self._child.process.wait()
        self.was_killed = -status in _KILLS
        said = self._child.stderr_tail()
        message = f"the measuring process ended, {self._child.end_text()}"
        return Infeasible("memory" if self._lacked_memory(said) else "crash", message)

    def _how_it_was_lost(self, message: str) -> Infeasible:
        """A task of the cluster is gone; where it is one of ours, how it ended."""
        ended = (self._pool or NO_WORKERS).ended(_SECONDS_TO_END)
        # Of a task that somebody else started one can't know.
        self.was_killed = all(-child.process.wait() in _KILLS for child in ended.values())
        said = " ".join(child.stderr_tail() for child in ended.values())
        causes = [f"worker {task} ended, {child.end_text()}" for task, child in ended.items()]
        return Infeasible(
            "memory" if self._lacked_memory(said) else "crash",
            f"a task of the cluster was lost: {'; '.join(causes) or message}",
        )

    def _lacked_memory(self, said: str) -> bool:
        return _oom_kills() > self._oom_kills or any(text in said for text in _OUT_OF_MEMORY)


def _num_logical_cpus(device_names: Sequence[str]) -> int:
    """CPU devices that this host's cores are shown as: as many as the names tell apart."""
    keys = [device_key(name) for name in device_names]
    return 1 + max((key.index for key in keys if key.type == "CPU" and not key.job), default=0)


def _oom_kills() -> int:
    """How many processes the kernel has killed for want of memory; 0 where it does not say."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
