"""A child process that runs graphs, seen from its parent: whatever happens there is a value."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from graphs.child_process import Child, start_child
from graphs.cluster import Cluster
from graphs.placement import Infeasible
from tfplace.evaluation.device_name import device_key
from tfplace.evaluation.training_run import Request, RuntimeConfig
from tfplace.evaluation.workers import WorkerPool, start_workers

_LOGGER = logging.getLogger(__name__)
_CHILD = "tfplace.evaluation.measuring_child"
_VMSTAT = Path("/proc/vmstat")


class MeasuringProcess:
    """Starts the child at the first request, and again after one that it did not survive.

    Where the cluster's devices are `workers:N` without addresses, the worker processes are
    this object's as well, and are started anew with the child: a worker may hang or crash
    with a placement. Use it as a context manager.
    """

    def __init__(
        self, cluster: Cluster, num_logical_cpus: int = 1, soft_placement: bool = False
    ) -> None:
        self._cluster = cluster
        self._num_logical_cpus = num_logical_cpus
        self._soft_placement = soft_placement
        self._child: Child | None = None
        self._pool: WorkerPool | None = None
        self._oom_kills = 0
        self.num_starts = 0

    def request(self, request: Request, timeout_seconds: float) -> Any:
        """The child's answer, or Infeasible.

        After reason "crash", "timeout" or a "memory" that killed the child, `alive` is False
        and prepared runs are gone.
        """
        child = self._started()
        try:
            child.connection.send(request)
            if not child.connection.poll(timeout_seconds):
                self.close()
                return Infeasible("timeout", f"no answer within {timeout_seconds:g} s")
            answer = child.connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            failure = self._how_it_ended(child)
            self.close()
            return failure
        except BaseException:  # Ctrl-C: what runs there must not go on
            self.close()
            raise
        if answer[0] == "ok":
            return answer[1]
        if answer[0] == "lost":
            self.close()
            return Infeasible("crash", f"a task of the cluster was lost: {answer[1]}")
        return Infeasible(answer[1], answer[2])

    @property
    def alive(self) -> bool:
        """Whether the child runs and still has what was prepared."""
        return self._child is not None and self._child.process.poll() is None

    def close(self) -> None:
        """Ends the child and the workers that were started for it; may be called twice."""
        if self._child is not None:
            self._child.end()
            self._child = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            self._pool = start_workers(tasks[-1] + 1)
            _LOGGER.info("started workers in %.1f s", time.monotonic() - started)
            addresses = [self._pool.addresses[device_key(d.name).task] for d in devices]
        names = [device.name for device in devices]
        return RuntimeConfig(names, addresses, self._num_logical_cpus, self._soft_placement)

    def _how_it_ended(self, child: Child) -> Infeasible:
        cause = child.end_cause()
        said = child.stderr_tail()
        memory = _oom_kills() > self._oom_kills or "bad_alloc" in said
        last = said.splitlines()[-1] if said else "it said nothing"
        return Infeasible(
            "memory" if memory else "crash", f"the measuring process ended, {cause}: {last}"
        )


def _oom_kills() -> int:
    """How many processes the kernel has killed for want of memory; 0 where it does not say."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
