"""A cluster of processes on this host, one core each: real parallel devices without GPUs.

Logical CPU devices of one process share a thread pool, so placing over them changes nothing;
processes that compute with one thread on a core of their own run side by side.
"""

import contextlib
import dataclasses
import logging
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from multiprocessing.connection import wait

from graphs.errors import ClusterError
from graphs.host.child import Child, start_child
from graphs.host.own_network import environment
from tfplace.measurement.allocator import DevicePeak

_LOGGER = logging.getLogger(__name__)
_WORKER = "tfplace.measurement.worker"
_NUM_ATTEMPTS = 3
EXECUTOR_THREADS = 2
"""One thread computes; a second executor thread starts what an arriving tensor makes ready while
the first is busy, or that would wait until nothing else is ready here (decision 056)."""


def executor_threads(num_devices: int) -> int:
    """Of each worker of a step on so many devices: of a step on one, nothing arrives.

    There a second thread would only begin a second op beside the first, on the same core: as slow,
    and by the chance of their turns both hold their memory.
    """
    return EXECUTOR_THREADS if num_devices > 1 else 1


@dataclasses.dataclass(frozen=True)
class WorkerPool(contextlib.AbstractContextManager["WorkerPool"]):
    """Running worker processes, which the context manager ends.

    Attributes:
      addresses: "127.0.0.1:port" of task 0, 1, …
      children: the processes.
    """

    addresses: Sequence[str]
    children: Sequence[Child]

    @property
    def target(self) -> str:
        """What a v1 Session connects to: task 0."""
        return f"grpc://{self.addresses[0]}"

    def all_alive(self) -> bool:
        return all(child.process.poll() is None for child in self.children)

    def peaks(self, reset: bool, timeout_seconds: float) -> list[DevicePeak | None]:
        """Of each worker; None where its allocator does not count or it does not answer.

        Args:
          reset: whether the peaks begin anew afterwards.
          timeout_seconds: the longest wait for each.
        """
        peaks: list[DevicePeak | None] = []
        for child in self.children:
            try:
                peaks.append(child.ask(reset, timeout_seconds))
            except (EOFError, TimeoutError):
                peaks.append(None)
        return peaks

    def ended(self, timeout_seconds: float) -> dict[int, Child]:
        """{task: worker} of those that have ended, once there is one or the time is over."""
        connections = [child.connection for child in self.children]
        for connection in wait(connections, timeout_seconds):  # readable: nobody else writes
            child = self.children[connections.index(connection)]  # type: ignore[arg-type]
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout_seconds)
        return {
            task: child
            for task, child in enumerate(self.children)
            if child.process.poll() is not None
        }

    def close(self) -> None:
        """Ends every worker; may be called twice."""
        for child in self.children:
            child.end()

    def __exit__(self, *error: object) -> None:
        self.close()


NO_WORKERS = WorkerPool((), ())


def start_workers(
    num_workers: int,
    timeout_seconds: float = 60.0,
    memory_bytes: Sequence[int] = (),
    num_threads: int | None = None,
    reachable: bool = False,
) -> WorkerPool:
    """Starts worker processes and waits until each one serves.

    They are in a network of their own, as children are with `own_network.environment`.

    Args:
      num_workers: how many; beyond the number of usable cores they share cores, which is
        logged, as their times then mean little.
      timeout_seconds: the longest wait for all of them.
      memory_bytes: [num_workers] the most that the ops of each may take; empty: no limit.
      num_threads: executor threads of each worker; None: as a step on all of them wants.
      reachable: whether they stay in this process's network, since it connects to them itself.

    Raises:
      ClusterError: num_workers is not positive, or a worker did not come up.
    """
    if num_workers < 1:
        raise ClusterError(
            f"starting workers: found {num_workers}, wanted at least 1; ask for workers:N, N > 0"
        )
    usable = sorted(os.sched_getaffinity(0))
    if num_workers > len(usable):
        _LOGGER.warning(
            "%d workers on %d cores: some share a core, and their step times say little",
            num_workers,
            len(usable),
        )
    network = {} if reachable else environment(os.getpid())
    failures: list[str] = []
    deadline = time.monotonic() + timeout_seconds
    for _ in range(_NUM_ATTEMPTS):  # a free port may be taken before the worker binds it
        if failures and time.monotonic() >= deadline:
            break
        addresses = free_addresses(num_workers)
        with contextlib.ExitStack() as ends:
            children = []
            for task in range(num_workers):
                core = usable[task % len(usable)]
                limit = memory_bytes[task] if memory_bytes else 0
                arguments = [str(task), str(core), ",".join(addresses), str(limit)]
                arguments.append(str(num_threads or executor_threads(num_workers)))
                children.append(start_child(_WORKER, arguments, environment=network))
                ends.callback(children[-1].end)
            failures = _wait_until_ready(children, deadline)
            if not failures:
                ends.pop_all()
                return WorkerPool(addresses, children)
        _LOGGER.warning("workers did not start, trying other ports: %s", "; ".join(failures))
    raise ClusterError(
        f"starting {num_workers} workers on loopback ports: {'; '.join(failures)}; wanted each to "
        "serve; see whether the ports are open and the memory suffices"
    )


def free_addresses(num_workers: int) -> list[str]:
    """Loopback addresses with ports that are free now, all different."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(num_workers)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]


def _wait_until_ready(children: Sequence[Child], deadline: float) -> list[str]:
    """What went wrong, one sentence per worker that does not serve; empty if all do."""
    failures = []
    for task, child in enumerate(children):
        try:
            failure = child.receive(deadline - time.monotonic())
        except TimeoutError:
            failure = "it was not ready in time"
        except EOFError:
            failure = f"it ended, {child.end_text()}"
        if failure:
            failures.append(f"worker {task}: {failure}")
    return failures
