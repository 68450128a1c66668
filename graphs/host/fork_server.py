"""Children that need not import TensorFlow: a process that has imported it forks them.

`python -m graphs.host.fork_server SOCKET MODULES` imports the modules and serves then: each message
on the socket starts one child, which runs a module as `python -m` would. An import takes 3 to 5 s
of a core, a fork some milliseconds, and the three processes of `workers:2` need the same one. It is
safe because importing TensorFlow starts no thread of its own: it begins with the first device that
a program asks for. This is Python's `multiprocessing.forkserver` for the children of `child.py`,
which have a pipe, a folder and an environment, and tell how they ended.
"""

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from graphs.host.dies_with_parent import run_tied

IDLE_SECONDS = 120.0
"""After so long without a child the server ends, and what it holds of memory is free."""
_MOST_BYTES = 1 << 18
"""Of a request: its environment is the longest part, and the kernel limits that to less."""
_READ_BY_IMPORTS = (
    *("TF_", "KERAS_", "XLA_", "GRPC_", "CUDA_", "NVIDIA_", "LD_", "PYTHON", "NUMPY_", "NPY_"),
    *("OMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "MALLOC_", "GLIBC_"),
)
"""What variables begin with that Python, TensorFlow or a library below it may read as it is loaded:
where one differs, a child is not forked."""
_Running = dict[int, tuple[int, socket.socket]]
"""{pidfd: pid, where its end is told}."""


class ForkedProcess:
    """What `subprocess.Popen` is to a child of this process, for one that the server forked."""

    def __init__(self, status: socket.socket) -> None:
        """Args: status: where the server tells the child's pid, and its returncode at its end."""
        self._status = status
        self._lock = threading.Lock()
        self._pid: int | None = None
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; waits until the server, which may still import, has forked it."""
        with self._lock:
            while self._pid is None and self.returncode is None:
                self._read(None)
        return self._pid or 0

    def poll(self) -> int | None:
        """Its returncode as in `Popen`; None while it runs or has not begun."""
        with self._lock:
            while self.returncode is None and self._read(0.0):
                pass
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its returncode; subprocess.TimeoutExpired: it did not end within so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while self.returncode is None:
                if not self._read(None if end is None else max(end - time.monotonic(), 0.0)):
                    raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
            return self.returncode

    def kill(self) -> None:
        """Kills it where it still runs."""
        if self.pid and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _read(self, timeout: float | None) -> bool:
        """Takes the next message; False where none came in time.

        Longer than some hundred years is for ever: the operating system can't count so far.
        """
        if timeout is not None and timeout > threading.TIMEOUT_MAX:
            timeout = None
        if not select.select([self._status], [], [], timeout)[0]:
            return False
        message = self._status.recv(32)
        if not message:  # the server is gone, and its children with it
            self.returncode = -signal.SIGKILL
        elif self._pid is None:
            self._pid = int(message)
        else:
            self.returncode = int(message)
        if self.returncode is not None:
            self._status.close()
        return True


class ForkServer:
    """The server's end in the process that has children. It ends with that process."""

    def __init__(
        self,
        start: Callable[..., subprocess.Popen[bytes]],
        environment: Mapping[str, str],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Starts it; it imports while the caller goes on.

        Args:
          start: starts a process, as `child.start_process`.
          environment: all variables that this gives the process.
          idle_seconds: after so many without a child it ends.
        """
        self._environment = _that_matters(environment)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = start(
                "graphs.host.fork_server",
                [str(theirs.fileno()), str(idle_seconds), "tensorflow"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    @property
    def is_own(self) -> bool:
        """Whether it runs, and for this process: not for the one that this was forked of."""
        return self._owner == os.getpid() and self._process.poll() is None

    def can_fork(self, environment: Mapping[str, str]) -> bool:
        """Whether what it has imported is what a child with this environment would import."""
        return _that_matters(environment) == self._environment

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
        pipe: int,
        stderr: int,
    ) -> ForkedProcess:
        """A child that runs `module`, with the pipe's number in it before the other arguments.

        Args:
          pipe: a descriptor that it gets.
          stderr: the descriptor that it writes its complaints to.

        Raises:
          ConnectionError: the server has ended.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cores = sorted(os.sched_getaffinity(0))
        request = pickle.dumps((module, list(arguments), directory, dict(environment), cores))
        with theirs, self._lock:
            descriptors = [pipe, stderr, theirs.fileno()]
            try:
                socket.send_fds(self._requests, [request], descriptors)
            except OSError:
                ours.close()
                raise
        return ForkedProcess(ours)

    def end(self) -> None:
        """Ends the server and every child of its."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            self._requests.close()


def _that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in environment if name.startswith(_READ_BY_IMPORTS)}


def main(argv: Sequence[str]) -> None:
    """Serves; returns in children only, once what they run has ended.

    Args:
      argv: the socket's number, after how many seconds without a child it ends, what is imported.
    """
    requests, idle_seconds = socket.socket(fileno=int(argv[0])), float(argv[1])
    for module in argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a child writes to every object, and would copy its page
    _serve(requests, idle_seconds)


def _serve(requests: socket.socket, idle_seconds: float) -> None:
    """Forks a child for each request, and tells how each one ended; see `main`."""
    running: _Running = {}
    is_closing = False  # nobody can ask any more
    while running or not is_closing:
        poll = select.poll()
        for descriptor in [*running, *([] if is_closing else [requests.fileno()])]:
            poll.register(descriptor, select.POLLIN)
        ready = [number for number, _ in poll.poll(None if running else idle_seconds * 1000.0)]
        for pidfd in running.keys() & ready:
            pid, status = running.pop(pidfd)
            _tell(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            status.close()
            os.close(pidfd)
        if not ready:
            requests.shutdown(socket.SHUT_RD)  # who asks now is told; what was asked is still there
        elif requests.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
        if not message:
            is_closing = True
        elif _is_child(message, descriptors, requests, running):
            return
    os._exit(0)


def _is_child(
    message: bytes, descriptors: Sequence[int], requests: socket.socket, running: _Running
) -> bool:
    """Forks a child; True in it, once what it runs has ended."""
    pipe, stderr, told = descriptors
    server = os.getpid()
    pid = os.fork()
    if not pid:
        for descriptor in (requests.detach(), told, *running):
            os.close(descriptor)
        for _, status in running.values():
            status.close()
        _run(server, pipe, stderr, *pickle.loads(message))
        return True
    os.close(pipe)
    os.close(stderr)
    status = socket.socket(fileno=told)
    _tell(status, pid)
    running[os.pidfd_open(pid)] = pid, status
    return False


def _tell(status: socket.socket, number: int) -> None:
    with contextlib.suppress(ConnectionError):  # nobody waits for it any more
        status.send(str(number).encode())


def _run(
    server: int,
    pipe: int,
    stderr: int,
    module: str,
    arguments: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    cores: Sequence[int],
) -> None:
    """In a child: becomes what `start_process` would have started."""
    os.setsid()
    os.dup2(stderr, 2)
    os.close(stderr)
    os.sched_setaffinity(0, cores)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    run_tied(server, module, [str(pipe), *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
