"""A child process's end of the pipe to its parent; see `graphs.host.child`."""

import dataclasses
import os
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import psutil

from graphs.host.op_libraries import load_named_op_libraries
from graphs.protos import Pickled

_WATCH_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Limited:
    """A request to a child that ends itself as soon as it holds so much more memory."""

    request: Pickled
    memory_bytes: float


@dataclasses.dataclass(frozen=True)
class GaveUp:
    """The last that a child says which ends itself: why, and what it has told before."""

    why: str
    last_message: Pickled


class Parent:
    """Who sent one request, and is told how far the child is: the last message is the answer.

    Attributes:
      request: what was sent.
    """

    def __init__(self, argv: Sequence[str], uses_gpus: bool = False) -> None:
        """Waits for the request, and keeps to its limit of memory."""
        self._connection, _ = connect_to_parent(argv, uses_gpus)
        self.request: Pickled = self._connection.recv()
        self._sending = threading.Lock()
        self._told: object = None
        if isinstance(self.request, Limited):
            limit, self.request = self.request.memory_bytes, self.request.request
            threading.Thread(target=self._end_above, args=(limit,), daemon=True).start()

    def tell(self, message: object) -> None:
        """Sends a message, which can be pickled."""
        with self._sending:
            self._told = message
            self._connection.send(message)

    def _end_above(self, memory_bytes: float) -> None:
        """Ends this process as soon as it holds so much more memory than now.

        What it holds now it was forked with, which takes none, or a host with little left could
        prove nothing. A limit on address space would count what TensorFlow only reserves.
        """
        process = psutil.Process()
        most = process.memory_info().rss + memory_bytes
        while process.memory_info().rss < most:
            time.sleep(_WATCH_SECONDS)
        self._sending.acquire()  # for good: what the other thread sent would hide why it ended
        why = f"it held more than {memory_bytes / 2**30:.1f} GiB of memory"
        self._connection.send(GaveUp(why, self._told))
        os._exit(0)


def connect_to_parent(
    argv: Sequence[str], uses_gpus: bool = False
) -> tuple[Connection, Sequence[str]]:
    """Opens the pipe, in a child, which loads the op libraries that its parent has loaded.

    Args:
      uses_gpus: whether TensorFlow sees this host's GPUs in it.

    Returns:
      The pipe and the arguments that are the module's own.
    """
    if not uses_gpus:
        hide_gpus()
    load_named_op_libraries()
    descriptor, *arguments = argv
    return Connection(int(descriptor)), arguments


def hide_gpus() -> None:
    """Keeps TensorFlow off this host's GPUs, in a process that has used none yet.

    Else it takes nearly all of their memory with its first op, and real runs get none.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
