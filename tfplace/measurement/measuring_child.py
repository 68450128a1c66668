"""The process that runs graphs for `measuring_process`: it may crash, hang or be killed.

It answers each request with ("ok", value), ("infeasible", reason, message), or ("lost", message)
where the runtime itself is gone, such as a worker that died.
"""

import logging
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import graphs.late_tensorflow as tf
from graphs.host.own_network import from_this_host_only
from graphs.host.parent import connect_to_parent, hide_gpus
from graphs.op_graph import FloatArray
from graphs.problem import Infeasible
from graphs.protos import Pickled
from tfplace.measurement import training_run
from tfplace.measurement.allocator import Peaks
from tfplace.measurement.device_name import device_key
from tfplace.measurement.step_stats import parse_step_stats

_NO_KERNEL = ("Cannot assign a device", "No OpKernel was registered", "No registered")
_MEMORY = (
    "OOM when allocating", "ran out of memory", "Failed to allocate", "out of memory",
    "Invalid TensorProto for feed value",  # a task found no room for it
)  # fmt: skip
_NOISE = (
    "Graph execution error", "Detected at node", "Node: ", "File ", "Additional GRPC", ":UNKNOWN",
)  # fmt: skip
_MESSAGE_CHARACTERS = 600


class _Runs:
    """The prepared runs of this process, by slot."""

    def __init__(self, runtime: training_run.RuntimeConfig) -> None:
        self._runtime = runtime
        self._runners: dict[int, Any] = {}
        self._connected = False
        self._peaks = Peaks()
        logical = tf.config.LogicalDeviceConfiguration
        if runtime.num_logical_cpus > 1:
            cpus = [logical()] * runtime.num_logical_cpus
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], cpus
            )
        if runtime.gpu_memory_bytes:
            parts = [logical(m // 2**20) for m in runtime.gpu_memory_bytes]
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("GPU")[0], parts
            )

    def answer(self, request: training_run.Request) -> Pickled:
        names = self._runtime.device_names
        if isinstance(request, training_run.PrepareRequest):
            return self._prepare(request)
        if isinstance(request, training_run.MemoryRequest):
            return self._peaks.of_devices(names, request.reset)
        if isinstance(request, training_run.PeersRequest):
            return _peers()
        if isinstance(request, training_run.ReachRequest):
            return _reached(request)
        if isinstance(request, training_run.ReleaseRequest):
            return self._release(request.slot)
        runner = self._runners[request.slot]
        if isinstance(request, training_run.StepRequest):
            return _time_steps(runner, request.num_steps)
        if isinstance(request, training_run.TraceRequest):
            return [parse_step_stats(runner.trace(), names) for _ in range(request.num_steps)]
        return runner.executed_graph()

    def _prepare(self, request: training_run.PrepareRequest) -> training_run.PreparedRun:
        from tfplace.measurement.step_runner import FunctionRunner, SessionRunner

        if request.through in ("auto", "tf.function"):
            self._connect()
            try:
                return self._start(request, FunctionRunner, "tf.function")
            except Exception as error:
                if request.through != "auto" or _reason(error) != "error":
                    raise
                logging.warning(
                    "tf.function can't run this graph, trying a Session: %s", _message(error)
                )
        return self._start(request, SessionRunner, "session")

    def _start(
        self, request: training_run.PrepareRequest, kind: Any, through: str
    ) -> training_run.PreparedRun:
        self._release(request.slot)
        runner = kind(request, self._runtime)
        self._runners[request.slot] = runner
        runner.start()
        return training_run.PreparedRun(through, runner.step())

    def _release(self, slot: int) -> None:
        runner = self._runners.pop(slot, None)
        if runner is None:
            return
        try:
            runner.release()
        except Exception as error:  # of a run that could not start: no fault of the next one
            if _reason(error) == "lost":
                raise
            logging.warning("variables of slot %d stay: %s", slot, _message(error))

    def _connect(self) -> None:
        """Makes the cluster's tasks devices of this process; a Session needs no such thing."""
        tf.config.set_soft_device_placement(self._runtime.soft_placement)
        if self._connected or not any(self._runtime.addresses):
            return
        tasks: dict[str, dict[int, str]] = {}
        for name, address in zip(self._runtime.device_names, self._runtime.addresses, strict=True):
            key = device_key(name)
            tasks.setdefault(key.job, {})[key.task] = address
        with from_this_host_only():
            tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(tasks))
        self._connected = True


def _peers() -> dict[str, list[str]]:
    """{GPU: the GPUs whose memory it reads itself}, as TensorFlow has enabled it."""
    from tensorflow.python.client import device_lib

    return {
        f"/device:GPU:{device_key(device.name).index}": [
            f"/device:GPU:{link.device_id}"
            for link in device.locality.links.link
            if link.type == "StreamExecutor"
        ]
        for device in device_lib.list_local_devices()
        if device.device_type == "GPU"
    }


def _reached(request: training_run.ReachRequest) -> list[str] | Infeasible:
    """A Session asks the tasks that its filters let through, and the server itself always."""
    config = tf.compat.v1.ConfigProto(
        device_filters=[request.task or "/job:none"],
        operation_timeout_in_ms=int(1e3 * request.seconds),
    )
    try:
        with tf.compat.v1.Session(f"grpc://{request.address}", tf.Graph(), config) as session:
            return [device.name for device in session.list_devices()]
    except tf.errors.DeadlineExceededError:
        return Infeasible("timeout", f"no answer within {request.seconds:g} s")
    except tf.errors.OpError as error:
        return Infeasible("error", _message(error))


def _split_first_gpu(memory_bytes: Sequence[int]) -> None:
    if memory_bytes:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("GPU")[0],
            [tf.config.LogicalDeviceConfiguration(m // 2**20) for m in memory_bytes],
        )


def _time_steps(runner: Any, num_steps: int) -> FloatArray:
    """Wall time of each step, from its call until its results are on this host."""
    seconds = np.empty(num_steps)
    for step in range(num_steps):
        start = time.perf_counter()
        runner.step()
        seconds[step] = time.perf_counter() - start
    return seconds


def _reason(error: BaseException) -> str:
    """An Infeasible's reason for what TensorFlow raised; "lost" where a task is gone."""
    message = _text(error)
    if isinstance(error, MemoryError | tf.errors.ResourceExhaustedError):
        return "memory"
    if isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError):
        return "lost"
    if any(text in message for text in _NO_KERNEL):
        return "no_kernel"
    if "Cannot colocate" in message:
        return "colocation"
    return "memory" if any(text in message for text in _MEMORY) else "error"


def _message(error: BaseException) -> str:
    """One line: what TensorFlow says, without its repetitions and stack."""
    lines = _text(error).splitlines()
    kept = dict.fromkeys(
        line.strip() for line in lines if line.strip() and not line.startswith(_NOISE)
    )
    return f"{type(error).__name__}: {' '.join(kept)}"[:_MESSAGE_CHARACTERS]


def _text(error: BaseException) -> str:
    return str(getattr(error, "message", None) or error)


def _serve(connection: Connection, runs: _Runs) -> None:
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            answer: tuple[object, ...] = ("ok", runs.answer(request))
        except Exception as error:
            logging.exception("answering %s", type(request).__name__)
            reason = _reason(error)
            message = _message(error)
            answer = ("lost", message) if reason == "lost" else ("infeasible", reason, message)
        connection.send(answer)


def main(argv: Sequence[str]) -> None:
    """Serves requests until the parent closes the pipe; the first message is a RuntimeConfig."""
    connection, _ = connect_to_parent(argv, uses_gpus=True)
    import tensorflow  # noqa: F401 - takes seconds, in which the parent starts the workers

    runtime: training_run.RuntimeConfig = connection.recv()
    keys = map(device_key, runtime.device_names)
    if not any(key.type == "GPU" and not key.job for key in keys):
        hide_gpus()
    runs = _Runs(runtime)
    _serve(connection, runs)
    # An ordinary exit waits for sessions on tasks that may be gone, for minutes.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
