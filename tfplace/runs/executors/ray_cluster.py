"""Spreads work over the nodes of a Ray cluster (`pip install tfplace[ray]`).

Each program is a Ray task that runs it on a node as LocalExecutor does, with the same limits. Ray
begins a task whose node is lost again on another one. Paths that a program reads or writes have
to mean the same on all nodes, but for Program.folders, which travel with it.
"""

import contextlib
import dataclasses
import io
import os
import signal
import tarfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from graphs.errors import UsageError
from graphs.host.scratch import scratch_directory
from tfplace.runs.executors.local import LocalExecutor
from tfplace.runs.executors.program import Ended, Program

LOST_NODES = 5  # a program is given up when it has lost so many
LOG_BYTES = 4 * 2**20  # of a log's end that comes back


class RayExecutor:
    """Runs programs on a Ray cluster, from several threads at a time, until it is told to stop."""

    def __init__(self, address: str | None) -> None:
        """Connects to the cluster.

        Args:
          address: HOST:PORT of the head node; None for $RAY_ADDRESS or a cluster on this host.

        Raises:
          UsageError: Ray is not installed, or no cluster answers.
        """
        self._ray = _connected(address)
        self._lock = threading.Lock()
        self._running: set[object] = set()
        self._is_stopped = False
        self._task = self._ray.remote(run_on_node)

    @property
    def num_cpus(self) -> int:
        """Of the whole cluster, at least 1: how many programs can run at a time."""
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def run(self, program: Program) -> Ended | None:
        """Runs it to its end or to a limit, on whichever nodes it takes; None where it was stopped.

        Raises:
          OSError: its log can't be written.
        """
        refusal = self._refusal(program)
        if refusal:
            return Ended(1, b"", "", refusal)
        packed = {name: pack(path) for name, path in program.folders.items()}
        with self._lock:
            if self._is_stopped:
                return None
            task = self._task.options(
                num_cpus=1, num_gpus=program.num_gpus, max_retries=LOST_NODES, name=program.module
            )
            reference = task.remote(program, packed)
            self._running.add(reference)
        try:
            ended, said = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            ended, said = Ended(1, b"", "", f"a defect of tfplace: {error}"), b""
        except self._ray.exceptions.RayError as error:
            if self._is_stopped:
                return None
            why = f"its nodes were lost ({type(error).__name__}), {LOST_NODES + 1} attempts"
            ended, said = Ended(-signal.SIGKILL, b"", "", why), b""
        finally:
            with self._lock:
                self._running.discard(reference)
        if program.log is not None:
            with open(program.log, "ab") as log:
                log.write(said)
        return None if self._is_stopped else ended

    def stop(self) -> None:
        """Ends what runs; nothing starts any more."""
        with self._lock:
            self._is_stopped = True
            for reference in self._running:
                self._ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leaves the cluster."""
        self._ray.shutdown()

    def _refusal(self, program: Program) -> str:
        """Why no node can ever run it, "" if one can: Ray would wait forever."""
        gpus = [int(node["Resources"].get("GPU", 0)) for node in self._ray.nodes() if node["Alive"]]
        if program.num_gpus <= max(gpus, default=0):
            return ""
        return (
            f"asking Ray for {program.num_gpus} GPUs: its largest node has {max(gpus, default=0)}; "
            "give a smaller --num_gpus, or add a node"
        )


def run_on_node(program: Program, packed: Mapping[str, bytes]) -> tuple[Ended, bytes]:
    """On a node: the process from beginning to end, and the end of what it wrote on stderr.

    Args:
      program: its folders and log are those of another host.
      packed: the folders' contents.
    """
    with scratch_directory() as scratch:
        folders = {name: unpack(content, Path(scratch, name)) for name, content in packed.items()}
        log = Path(scratch, "log")
        here = dataclasses.replace(program, folders=folders, log=str(log), num_gpus=0)
        host = _node_name()
        if not os.path.isdir(program.directory):
            reason = (
                f"{host} has no folder {program.directory}: all nodes need the same paths, as on a "
                "shared file system"
            )
            return Ended(1, b"", "", reason, host), b""
        ended = LocalExecutor().run(here)
        assert ended is not None  # nobody here tells it to stop
        said = log.read_bytes()[-LOG_BYTES:]
    return dataclasses.replace(ended, host=host), said


def pack(folder: str) -> bytes:
    """Puts a folder's files into an archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(folder, arcname=".")
    return content.getvalue()


def unpack(content: bytes, folder: Path) -> str:
    """Makes the folder with what `pack` took; returns its path."""
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")
    return str(folder)


def _connected(address: str | None) -> ModuleType:
    """The module `ray`, connected to a cluster that is there."""
    try:
        import ray
    except ImportError:
        raise UsageError(
            "running on Ray: it is not installed; `pip install 'tfplace[ray]'`, or leave "
            "--executor=ray out"
        ) from None
    try:
        with _signals_kept():
            ray.init(address or "auto", log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises many kinds, some of them plain
        raise UsageError(
            f"connecting to Ray at {address or 'this host'}: {error}; start a node with `ray start "
            "--head`, and give its HOST:PORT as --ray_address"
        ) from None
    return ray


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Gives SIGTERM back to whoever had it: Ray takes it for itself."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _node_name() -> str:
    """The node's address and the beginning of its id: one host may be several nodes."""
    import ray

    context = ray.get_runtime_context()
    return f"{ray.util.get_node_ip_address()}/{context.get_node_id()[:8]}"
