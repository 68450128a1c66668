"""A child process that is one task of a cluster: `tf.distribute.Server` on one core.

Started by `workers.start_workers`; sends None when it is ready, else what went wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from graphs.child_process import connect_to_parent


def main(argv: Sequence[str]) -> None:
    """Serves until the parent's end of the pipe closes.

    Args:
      argv: pipe, parent, then task index, core, and the addresses joined by commas.
    """
    connection, (task, core, addresses) = connect_to_parent(argv)
    # Before TensorFlow starts its threads: they inherit it.
    os.sched_setaffinity(0, {int(core)})
    import tensorflow as tf

    try:
        server = tf.distribute.Server(
            {"worker": addresses.split(",")},
            job_name="worker",
            task_index=int(task),
            config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
            ),
            protocol="grpc",
        )
    except tf.errors.OpError as error:
        connection.send(f"{type(error).__name__}: {error.message}")
        return
    connection.send(None)
    connection.poll(None)  # readable means closed: the parent never sends
    del server
    os._exit(0)  # a server has no way to stop


if __name__ == "__main__":
    main(sys.argv[1:])
