"""One process of a comparison: it trains a model one way, as its parent asks.

Its arguments are its way, its cores, and for MultiWorkerMirroredStrategy its number and the
addresses of all; what it is asked is `Prepare` or a number of steps. An answer is what was asked
for, or a sentence that says what went wrong.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from graphs.host.parent import connect_to_parent
from tests.rival.models import MODELS
from tests.rival.ways import MULTI_WORKER, ONE, TFPLACE, Prepare
from tfplace.measurement.worker import keep_freed_memory


def main(argv: Sequence[str]) -> None:
    """Answers until the parent closes the pipe."""
    connection, (way, cores, task, *addresses) = connect_to_parent(argv)
    keep_freed_memory()  # as tfplace's workers do: it would else be a part of their gain
    pinned = [int(core) for core in cores.split(",") if core]
    if pinned:
        os.sched_setaffinity(0, pinned)  # before TensorFlow starts its threads: they inherit it
    make = _step_maker(way, len(pinned), int(task), addresses)
    step: Callable[[], float] | None = None
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            os._exit(0)  # strategies and servers have threads that an ordinary exit waits for
        if isinstance(asked, Prepare):
            step = None
            step = _answer(connection, lambda asked=asked: make(asked))
            _answer(connection, lambda step=step, n=asked.num_steps: [step() for _ in range(n)])
        else:
            _answer(connection, lambda step=step, n=asked: _timed(step, n))


def _answer(connection: Connection, work: Callable[[], Any]) -> Any:
    """Sends what the work gives, or what it raised; a step itself can't be sent, None goes."""
    try:
        value = work()
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}"[:600])
        raise
    connection.send(None if callable(value) else value)
    return value


def _timed(step: Callable[[], float], num_steps: int) -> list[float]:
    """Wall time of each step, from its call until its loss is here."""
    seconds = []
    for _ in range(num_steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return seconds


def _step_maker(
    way: str, num_threads: int, task: int, addresses: Sequence[str]
) -> Callable[[Prepare], Callable[[], float]]:
    """Sets TensorFlow up for a way; what it returns makes the step of a model."""
    if addresses:
        cluster = {
            "cluster": {"worker": list(addresses)},
            "task": {"type": "worker", "index": task},
        }
        os.environ["TF_CONFIG"] = json.dumps(cluster)
    import tensorflow as tf

    from tests.rival import steps

    if num_threads:  # one for each core that it has
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    if way == TFPLACE:
        return lambda asked: steps.placed(MODELS[asked.model], asked.path)
    if way == ONE:
        return lambda asked: steps.unsplit(MODELS[asked.model])
    strategy = _multi_worker(tf) if way == MULTI_WORKER else _mirrored(tf, num_threads)
    return lambda asked: steps.distributed(MODELS[asked.model], strategy)


def _multi_worker(tf: Any) -> Any:
    communication = tf.distribute.experimental
    ring = communication.CommunicationOptions(
        implementation=communication.CommunicationImplementation.RING
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)


def _mirrored(tf: Any, num_devices: int) -> Any:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * num_devices,
    )
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(num_devices)])


if __name__ == "__main__":
    main(sys.argv[1:])
