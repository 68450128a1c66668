"""Worker processes of this program, for models that were placed on `workers:N`.

TensorFlow has one connection to a cluster per program, so all models that are loaded share the
processes that the first one started. They end with the program, or when another model needs more
of them and none that uses them is left. (Ending them as soon as a model is collected would take
calls of TensorFlow from wherever Python happens to collect, and local work hangs if they end
without these calls.)
"""

import atexit
import dataclasses
import gc
import threading
import weakref

import graphs.late_tensorflow as tf
from graphs.errors import ClusterError
from graphs.host.own_network import from_this_host_only, warn_of_other_users
from graphs.protos import Trackable
from tfplace.measurement.workers import WorkerPool, start_workers


@dataclasses.dataclass
class _Running:
    """What runs now.

    Attributes:
      pool: the processes.
      over: set when the thread that keeps them may end.
      models: the loaded models that use them.
    """

    pool: WorkerPool
    over: threading.Event
    models: list[weakref.ref[Trackable]] = dataclasses.field(default_factory=list)

    def is_used(self) -> bool:
        return any(model() is not None for model in self.models)


_lock = threading.Lock()
_running: _Running | None = None


def connect(num_workers: int) -> None:
    """Makes the CPUs of worker processes devices of this program, as /job:worker/task:0 and on.

    Raises:
      ClusterError: they can't be started, or the program has variables or a cluster already.
    """
    global _running
    with _lock:
        if _running is not None and _suffices(_running, num_workers):
            return
        _require_no_variables()
        _end()
        _require_unconnected()
        warn_of_other_users("this program connects to them itself")
        _running = _started(num_workers)
        _connect({"worker": list(_running.pool.addresses)})


def keep_for(model: Trackable) -> None:
    """The workers are not ended while this model is there."""
    with _lock:
        if _running is not None:
            _running.models.append(weakref.ref(model))


@atexit.register
def end() -> None:
    """Ends the workers, if any run; models that use them are of no use any more."""
    with _lock:
        _end()


def _suffices(running: _Running, num_workers: int) -> bool:
    """Whether these workers do; if not, they can be ended.

    Raises:
      ClusterError: they don't, and another model uses them.
    """
    found, is_alive = len(running.pool.addresses), running.pool.all_alive()
    if is_alive and found >= num_workers:
        return True
    if running.is_used():
        state = "has started" if is_alive else "has lost some of the"
        raise ClusterError(
            f"loading a placed model: it needs {num_workers} workers, and this program {state} "
            f"{found} for another model; wanted that one to be gone or to have enough: load the "
            "model with the most workers first, or begin a new process"
        )
    return False


def _end() -> None:
    """Disconnects first: TensorFlow would go on asking for devices that are gone, and hang."""
    global _running
    if _running is not None:
        _connect({})
        _running.pool.close()
        _running.over.set()
        _running = None


def _connect(addresses: dict[str, list[str]]) -> None:
    with from_this_host_only(is_always=True):
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(addresses))


def _require_no_variables() -> None:
    """TensorFlow (2.21) reads variables that were made before a connection, but what is assigned to
    them is lost without a word."""
    gc.collect()
    names = [each.name for each in gc.get_objects() if _is_variable(each)]
    if names:
        raise ClusterError(
            f"starting workers for a model: this program has {len(names)} variables, such as "
            f"{names[0]!r}; wanted none yet: what is assigned to them is lost once TensorFlow "
            "is connected to the workers; load this model before anything makes variables, or in "
            "a program of its own"
        )


def _is_variable(each: object) -> bool:
    """Whether it is a variable with a value, not one of a graph that is built."""
    if not issubclass(type(each), tf.Variable):
        return False
    handle = getattr(each, "handle", None)
    return handle is not None and not tf.is_symbolic_tensor(handle)


def _require_unconnected() -> None:
    others = [d.name for d in tf.config.list_logical_devices() if d.name.startswith("/job:")]
    if others:
        raise ClusterError(
            f"starting workers for a placed model: this program is connected to {others[0]}, and "
            "TensorFlow has one cluster per program; load the model without start_workers in a "
            "cluster with the tasks that it names, or with start_workers in another program"
        )


def _started(num_workers: int) -> _Running:
    """Starts them in a thread of their own: they die with the thread that started them."""
    over, ready = threading.Event(), threading.Event()
    outcome: list[WorkerPool | BaseException] = []

    def keep() -> None:
        try:
            outcome.append(start_workers(num_workers, reachable=True))
        except BaseException as error:
            outcome.append(error)
        ready.set()
        over.wait()

    threading.Thread(target=keep, name="tfplace workers", daemon=True).start()
    ready.wait()
    if isinstance(outcome[0], WorkerPool):
        return _Running(outcome[0], over)
    over.set()
    raise outcome[0]
