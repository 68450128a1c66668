"""`tfplace.load`: an emitted model with its variables where they were placed."""

import os
from collections.abc import Iterator, Mapping, Sequence

import graphs.late_tensorflow as tf
from graphs.errors import ClusterError, ModelError, UsageError
from graphs.function_library import CONVERTS_WEIGHTS, CUT, bodies
from graphs.loading.sniff import sniff
from graphs.protos import Operation, Tensor, TfFunction, Trackable
from rewrite.split.cut_variable import CutVariable
from rewrite.split.states import Sharded
from tfplace.measurement.device_name import DeviceKey, device_key
from tfplace.measurement.presence import WORKER_JOB


def load(
    path: str, tags: str | Sequence[str] | None = None, start_workers: bool = False
) -> Trackable:
    """Loads an emitted SavedModel with its variables on the devices that their ops want.

    It is `tf.saved_model.load` with the one option that makes TensorFlow honour the variable
    devices which tfplace wrote; loaded without it, every variable lies on the default device
    and its value may travel at every step.

    Args:
      path: a SavedModel directory.
      tags: as for tf.saved_model.load.
      start_workers: whether to start the worker processes that a model for `workers:N` needs, one
        core each, on this host. They end with the program; further models share them. This has
        to come before anything makes variables. A model that needs none is loaded without.

    Raises:
      ModelError: there is no SavedModel.
      ClusterError: this process doesn't see a device that the model was placed on, or the workers
        can't be started.
    """
    from tfplace.api import local_workers

    tasks = _tasks(path)
    if not start_workers or not tasks:
        _require_seen(path, tasks)
        return _load(path, tags)
    _require_workers(path, tasks)
    local_workers.connect(1 + max(key.task for key in tasks.values()))
    # The workers have another working directory.
    model = _load(os.path.abspath(path) if os.path.exists(path) else path, tags)
    local_workers.keep_for(model)
    return model


def make_whole(model: Trackable, functions: Sequence[TfFunction] = ()) -> int:
    """Puts weights together that a placed model has in pieces, as before saving or reading them.

    A step with its weights in pieces (`--cut=weights`) leaves the model's own variables empty. All
    other functions of the model put them together themselves, and the next step cuts them again.

    Args:
      model: as `load` or tf.saved_model.load gives it.
      functions: of the model; all of its signatures where none is given.

    Returns:
      How many variables were in pieces.

    Raises:
      UsageError: it is no loaded model.
    """
    if not functions and not hasattr(model, "signatures"):
        raise UsageError(
            f"putting weights together: found a {type(model).__name__}; wanted a model as "
            "tfplace.load or tf.saved_model.load gives it"
        )
    asked = functions or model.signatures.values()
    return sum(_made_whole(*each) for function in asked for each in _in_pieces(function))


def _in_pieces(function: TfFunction) -> Iterator[tuple[Tensor, Sequence[Operation]]]:
    """The handle of each variable that a function has in pieces, and the ops that hold these."""
    graph = function.graph
    given = dict(zip(map(id, graph.internal_captures), function.captured_inputs, strict=True))
    calls = [op for op in graph.get_operations() if CONVERTS_WEIGHTS in op.node_def.attr]
    pieces = [op for op in graph.get_operations() if CUT in op.node_def.attr]
    for call in calls if pieces else ():
        # A load has put a number behind the name that the piece was given.
        of = {name: op for op in pieces for name in _begins(op.get_attr("shared_name"))}
        names = [of[name.decode()] for name in call.get_attr(CONVERTS_WEIGHTS)]
        count = len(names) // len(call.inputs)
        for number, tensor in enumerate(call.inputs):
            yield given[id(tensor)], names[number * count : (number + 1) * count]


def _begins(name: bytes) -> tuple[str, str]:
    return name.decode(), name.decode().rpartition("_load_")[0]


def _made_whole(handle: Tensor, pieces: Sequence[Operation]) -> bool:
    ops, dtype = tf.raw_ops, pieces[0].get_attr("dtype")
    if tf.size(ops.ReadVariableOp(resource=handle, dtype=dtype)) > 0:
        return False
    handles = []
    for op in pieces:
        with tf.device(op.device):
            name = op.get_attr("shared_name")
            shape = op.get_attr("shape")
            handles.append(ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=name))
    axis, outer = pieces[0].get_attr(CUT)
    parts = [ops.ReadVariableOp(resource=each, dtype=dtype) for each in handles]
    (*shape,) = parts[0].shape
    size, shape[axis] = shape[axis], shape[axis] * len(parts)
    names = tuple(op.name for op in pieces)
    cut = CutVariable(dtype, tuple(shape), Sharded(axis, outer, size // outer), names)
    ops.AssignVariableOp(resource=handle, value=cut.joined(parts, tf.experimental.numpy))
    for each in handles:
        ops.AssignVariableOp(resource=each, value=tf.zeros([0], dtype))
    return True


def _load(path: str, tags: str | Sequence[str] | None) -> Trackable:
    options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
    try:
        return tf.saved_model.load(path, tags=tags, options=options)
    except OSError as error:
        raise ModelError(
            f"loading {path}: {error}; wanted the folder of a SavedModel, as --output_dir names it"
        ) from error


def _tasks(path: str) -> Mapping[str, DeviceKey]:
    """{device string: its parts} of all that lies on a task of a cluster."""
    try:
        meta_graphs = getattr(sniff(path).proto, "meta_graphs", ())
    except ModelError:
        return {}  # TensorFlow says what is wrong, or it reads from where we don't
    found: set[str] = set()
    for meta_graph in meta_graphs:
        found.update(node.device for _, nodes in bodies(meta_graph.graph_def) for node in nodes)
        found.update(node.variable.device for node in meta_graph.object_graph_def.nodes)
    keys = {name: device_key(name) for name in sorted(found)}
    return {name: key for name, key in keys.items() if key.job}


def _require_workers(path: str, tasks: Mapping[str, DeviceKey]) -> None:
    for name, key in tasks.items():
        if (key.job, key.type, key.index) != (WORKER_JOB, "CPU", 0):
            raise ClusterError(
                f"loading {path} with start_workers: it has ops on {name}, which is not the CPU "
                "of a worker process as workers:N has them; connect to its cluster instead "
                "(an example is in tfplace/docs/multiple_hosts.md) and load without start_workers"
            )


def _require_seen(path: str, tasks: Mapping[str, DeviceKey]) -> None:
    """Without this TensorFlow would load some such models, and fail when they are called."""
    seen = [device.name for device in tf.config.list_logical_devices()] if tasks else []
    keys = {device_key(name) for name in seen}
    for name, key in tasks.items():
        if key not in keys:
            raise ClusterError(
                f"loading {path}: it has ops on {name}, which this process doesn't see; it sees "
                f"{', '.join(seen)}; if it was placed on workers:N, give start_workers=True, else "
                "connect to its cluster first (tf.config.experimental_connect_to_cluster, an "
                "example is in tfplace/docs/multiple_hosts.md)"
            )
