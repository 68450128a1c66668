"""A child process that is one task of a cluster: `tf.distribute.Server` on one core.

`workers.start_workers` starts it. It sends "" when it is ready, else what went wrong. After that,
each bool that it receives asks for its memory's peak (`allocator.Peaks`); True begins that anew.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Sequence

import graphs.late_tensorflow as tf
from graphs.host.own_network import from_this_host_only
from graphs.host.parent import connect_to_parent
from tfplace.measurement.allocator import Peaks, limit_cpu_memory, take_at_once

# mallopt's parameters (malloc.h of glibc) and their values here: blocks of up to 32 MiB, the most
# that it takes, come from the heap, and the heap is never given back.
_MALLOC_OPTIONS = {-3: 1 << 25, -1: (1 << 31) - 1, -2: 1 << 26}


def main(argv: Sequence[str]) -> None:
    """Serves until the parent's end of the pipe closes.

    Args:
      argv: the pipe, the task's index, its core, the addresses of all tasks joined by commas,
        the most bytes that its ops may take, 0 for no limit but the host's, and how many executor
        threads it has.
    """
    connection, (task, core, addresses, memory_bytes, num_threads) = connect_to_parent(argv)
    keep_freed_memory()
    # Before TensorFlow starts its threads: they inherit it.
    os.sched_setaffinity(0, {int(core)})
    # Of the environment, since a program that connects brings a configuration of its own.
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS=num_threads)
    if 0 < int(memory_bytes) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        limit_cpu_memory(int(memory_bytes))
        take_at_once(int(memory_bytes))
    try:
        with from_this_host_only(is_always=True):
            server = tf.distribute.Server(
                {"worker": addresses.split(",")},
                job_name="worker",
                task_index=int(task),
                protocol="grpc",
            )
    except tf.errors.OpError as error:
        connection.send(f"{type(error).__name__}: {error.message}")
        return
    connection.send("")
    with contextlib.suppress(EOFError):  # the parent closed the pipe
        peaks, here = Peaks(), "/device:CPU:0"
        while True:
            connection.send(peaks.of_devices([here], reset=connection.recv()).get(here))
    del server
    os._exit(0)  # a server has no way to stop


def keep_freed_memory() -> None:
    """Lets buffers of transfers stay with the process, where libc is glibc.

    Otherwise malloc returns large ones to the kernel and gets new, empty pages for the next. By
    chance of the heap's state that doubled or trebled what a byte takes, for as long as a process
    lived (`tfplace/docs/decisions/003-calibration.md`).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for option, value in _MALLOC_OPTIONS.items():
        if mallopt is not None:
            mallopt(option, value)


if __name__ == "__main__":
    main(sys.argv[1:])
