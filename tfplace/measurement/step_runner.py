"""Runs of a graph inside a measuring child: through tf.function, or through a v1 Session.

The Session is for graphs that no function can hold, and to look at a step op by op: the run
metadata of TensorFlow 2.21's functions hold no times of ops. Variables start as TensorFlow 2 saved
them either way.

Both import the prepared GraphDef with its feeds replaced by tensors that already lie on the
device of the fed op's task, so that a step moves nothing that a training step would not.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.function_library import CUT, bodies, cut_apart, whole_of_piece
from graphs.names import op_of, with_index
from graphs.protos import (
    Graph,
    GraphDef,
    Message,
    NodeDef,
    Operation,
    SessionConfig,
    Tensor,
    TfFunction,
)
from graphs.run_session import assigned, starting_values, write_variables
from graphs.source_model import Initialization
from tfplace.measurement.device_name import task_prefix
from tfplace.measurement.run_graph import prepare_run_graph, subgraph, used_tensors, variable_nodes
from tfplace.measurement.training_run import (
    ExecutedNode,
    PrepareRequest,
    RuntimeConfig,
    TrainingRun,
)

v1 = tf.compat.v1
SMALL_BYTES = 1 << 24
"""Values that are smaller are sent to their devices together."""
Outputs = Mapping[str, np.ndarray]


class FunctionRunner:
    """A run through tf.function, as the contract, section 5, wants it timed.

    `wrap_function` is tf.function's tracing without automatic control dependencies, which
    would order ops that the model leaves unordered. It takes reference variables, frames of
    v1 loops and functions alike, on this host and on other tasks.
    """

    def __init__(self, request: PrepareRequest, runtime: RuntimeConfig) -> None:
        self._request = request
        self._runtime = runtime
        self._run = request.run
        self._names = [with_index(f) for f in self._run.fetches if ":" in f]
        # A function without a device is led by the client, which has none of the cluster's.
        remote = bool(task_prefix(runtime.device_names[0]))
        self._device = runtime.device_names[0] if remote else None
        self._has_gpu = bool(tf.config.list_logical_devices("GPU"))
        self._feeds: list[Tensor] = []
        self._variables: GraphDef = None  # a GraphDef of their handles

    def start(self) -> None:
        """Imports the graph and gives the variables their values."""
        run = self._run
        graph_def = _prepared_graph(self._request, run, self._runtime)
        self._variables = _variables_of(graph_def)
        self._initialize(graph_def, run.initialization)
        feeds = _usable_feeds(graph_def, run)
        device_of = _devices_of_feeds(graph_def, feeds, self._runtime)
        for tensor, value in feeds.items():
            with tf.device(device_of[tensor]):
                self._feeds.append(tf.identity(tf.constant(value)))
        self._function = _import_function(
            subgraph(graph_def, run.fetches, feeds), feeds, _fetch(run.fetches)
        )

    def _initialize(self, graph_def: GraphDef, initialization: Initialization) -> None:
        values, others = _starting_values(graph_def, self._run, self._request.seed)
        if values:  # one function for all of them: each has to be traced and optimized
            assign = _assign_function(graph_def, values)
            # Led by this process: the first device may have no room for what others get.
            assign(*(tf.constant(value) for value in values.values()))
        for ops in others:
            needed = subgraph(graph_def, ops, ())
            # The paths are constants of the function, so that they are made inside it.
            paths = functools.partial(_constant_feeds, needed, initialization)
            self._call(_import_function(needed, {}, _fetch(ops), paths))

    def _call(self, function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        with tf.device(self._device):
            return function(*arguments)

    def step(self) -> Outputs:
        """Makes one step; returns, once all of it is done, its fetched tensors."""
        *tensors, done = self._call(self._function, *self._feeds)
        done.numpy()
        values = [tensor.numpy() for tensor in tensors]
        if self._has_gpu:  # a function may end before the kernels that it started do
            tf.test.experimental.sync_devices()
        return dict(zip(self._names, values, strict=True))

    def release(self) -> None:
        """Gives back the variables; it may be called after a `start` that failed half-way, too."""
        self._feeds = []
        variables, self._variables = self._variables, None
        if variables is not None and (handles := _handles(variables)):
            destroy = _import_function(variables, {}, lambda graph: _destroy_ops(graph, handles))
            self._call(destroy)


class SessionRunner:
    """A run through a v1 Session.

    `start`, `step` and `release` are those of FunctionRunner.
    """

    def __init__(self, request: PrepareRequest, runtime: RuntimeConfig) -> None:
        remote = next(filter(None, runtime.addresses), "")
        self._request = request
        self._runtime = runtime
        self._fetches: list[str] = list(request.run.fetches)
        self._graph = tf.Graph()
        self._session = v1.Session(
            f"grpc://{remote}" if remote else "", self._graph, _session_config(runtime)
        )
        self._destroy: list[Operation] | None = None

    def start(self) -> None:
        with self._graph.as_default():
            self._import(self._request.run)
        self._step = self._session.make_callable(self._fetches)

    def _import(self, run: TrainingRun) -> None:
        request, runtime = self._request, self._runtime
        graph_def = _prepared_graph(request, run, runtime)
        feeds = _usable_feeds(graph_def, run)
        input_map: dict[str, Tensor] = {}
        resident: dict[str, np.ndarray] = {}  # variables that hold the feeds
        device_of = _devices_of_feeds(graph_def, feeds, runtime)
        for index, (tensor, value) in enumerate(feeds.items()):
            value = np.asarray(value, object if np.asarray(value).dtype.kind in "US" else None)
            name, dtype = f"{_container(request)}/feed_{index}", tf.as_dtype(value.dtype)
            with tf.device(device_of[tensor]):
                handle = tf.raw_ops.VarHandleOp(
                    dtype=dtype, shape=value.shape, shared_name=name, name=name
                )
                input_map[tensor] = tf.raw_ops.ReadVariableOp(
                    resource=handle, dtype=dtype, name=f"{name}/read"
                )
            resident[name] = value
        write_variables(self._session, resident)
        input_map |= _constant_feeds(graph_def, run.initialization)
        tf.graph_util.import_graph_def(graph_def, input_map, name="")
        self._destroy = _destroy_ops(self._graph, _handles(self._graph.as_graph_def()))
        nodes = variable_nodes(graph_def)
        values, others = _starting_values(graph_def, run, request.seed)
        # Large ones each alone. Values may come by the first device, which is the last to get its
        # own.
        ordered = sorted(values, key=lambda name: nodes[name].device, reverse=True)
        small = [name for name in ordered if values[name].nbytes < SMALL_BYTES]
        large = [[name] for name in ordered if values[name].nbytes >= SMALL_BYTES]
        for names in [*large, small] if small else large:
            write_variables(self._session, {nodes[name].name: values[name] for name in names})
        for ops in others:
            self._session.run(ops)

    def step(self) -> Outputs:
        values = self._step()
        return {
            with_index(name): value
            for name, value in zip(self._fetches, values, strict=True)
            if ":" in name
        }

    def trace(self) -> Message:
        """One step with a full trace: its StepStats."""
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        self._session.run(self._fetches, options=options, run_metadata=metadata)
        return metadata.step_stats

    def executed_graph(self) -> list[ExecutedNode]:
        """What a step runs: the graph after Grappler's rewrites, as its devices got it."""
        metadata = v1.RunMetadata()
        # A session keeps what it made of a graph by these options too: as `trace` has them, or
        # the graph would be another instance, optimized anew.
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        self._session.run(self._fetches, options=options, run_metadata=metadata)
        return [
            ExecutedNode(node.name, node.op, node.device, tuple(node.input))
            for partition in metadata.partition_graphs
            for node in partition.node
        ]

    def release(self) -> None:
        if self._destroy is not None:
            self._session.run(self._destroy)
        self._session.close()


def _prepared_graph(request: PrepareRequest, run: TrainingRun, runtime: RuntimeConfig) -> GraphDef:
    graph_def = v1.GraphDef.FromString(request.graph_def)
    prepared = prepare_run_graph(
        graph_def,
        run.source_graph or graph_def,
        run.initialization,
        runtime.device_names[0],
        _container(request),
    )
    known = variable_nodes(prepared)
    held = [node for _, nodes in bodies(prepared) for node in nodes if CUT in node.attr]
    for name, node in {node.attr["shared_name"].s.decode(): node for node in held}.items():
        if name not in known:  # a function holds it
            prepared.node.add().CopyFrom(node)
            prepared.node[-1].name = name
            del prepared.node[-1].input[:]
    return prepared


def _container(request: PrepareRequest) -> str:
    return f"tfplace.slot.{request.slot}"  # TensorFlow refuses an underscore here


def _usable_feeds(graph_def: GraphDef, run: TrainingRun) -> dict[str, np.ndarray]:
    """Feeds by "op:i"; an import refuses one that no op uses."""
    used = used_tensors(graph_def)
    return {with_index(t): value for t, value in run.feeds.items() if with_index(t) in used}


def _devices_of_feeds(
    graph_def: GraphDef, feeds: Iterable[str], runtime: RuntimeConfig
) -> dict[str, str]:
    """The CPUs of the tasks where the fed ops lie: training data come from host memory."""
    device = {node.name: node.device or runtime.device_names[0] for node in graph_def.node}
    task = {tensor: task_prefix(device[op_of(tensor)]) for tensor in feeds}
    here = "/job:localhost/replica:0/task:0"
    return {tensor: f"{prefix or here}/device:CPU:0" for tensor, prefix in task.items()}


def _constant_feeds(graph_def: GraphDef, initialization: Initialization) -> dict[str, Tensor]:
    """Checkpoint and asset paths as constants in place of the tensors that take them."""
    paths = dict(initialization.asset_feeds)
    if initialization.restore_op:
        paths[initialization.filename_tensor] = initialization.checkpoint_prefix
    used = used_tensors(graph_def)
    return {
        with_index(tensor): tf.constant(path)
        for tensor, path in paths.items()
        if with_index(tensor) in used
    }


def _starting_values(
    graph_def: GraphDef, run: TrainingRun, seed: int
) -> tuple[dict[str, np.ndarray], list[list[str]]]:
    """{variable: value}, and the ops that give others theirs, in turn."""
    initialization = run.initialization
    restore = [initialization.restore_op] if initialization.restore_op else []
    others = [ops for ops in (list(initialization.init_ops), restore) if ops]
    known, pieces = variable_nodes(graph_def), dict[str, list[NodeDef]]()  # in order
    for name in sorted(known, key=lambda name: (len(name), name)):  # shard_10 behind shard_9
        if CUT in known[name].attr:
            pieces.setdefault(whole_of_piece(name), []).append(known[name])
    # A served model's optimizer, which the step never reads, would take memory for nothing.
    wanted = [*run.fetches, *initialization.init_ops, *restore]
    nodes = variable_nodes(subgraph(graph_def, wanted, run.feeds))
    specs = {
        name: (
            tf.as_dtype(node.attr["dtype"].type),
            [dim.size for dim in node.attr["shape"].shape.dim],
        )
        for name, node in nodes.items()
    }
    values = starting_values(initialization, specs, seed)
    for name in [name for name in values if nodes[name].name in pieces]:
        # Cut on this host: whole, they may be too large for every device.
        whole, own = values[name], pieces[nodes[name].name]
        axis, outer = own[0].attr[CUT].list.i
        parts = cut_apart(whole, axis, outer, len(own), np)
        names = [node.attr["shared_name"].s.decode() for node in own]
        values |= {name: whole[:0], **dict(zip(names, parts, strict=True))}
    return values, others


def _handles(graph_def: GraphDef) -> list[str]:
    return [node.name for node in graph_def.node if node.op == "VarHandleOp"]


def _destroy_ops(graph: Graph, handles: Sequence[str]) -> list[Operation]:
    """Ops that free the resource variables; TensorFlow can't free reference variables."""
    return [
        tf.raw_ops.DestroyResourceOp(
            resource=graph.get_tensor_by_name(f"{handle}:0"), ignore_lookup_error=True
        )
        for handle in handles
    ]


def _fetch(names: Sequence[str]) -> Callable[[Graph], Sequence[Operation | Tensor]]:
    return lambda graph: [graph.as_graph_element(name) for name in names]


def _import_function(
    graph_def: GraphDef,
    feeds: Mapping[str, np.ndarray],
    fetch: Callable[[Graph], Sequence[Operation | Tensor]],
    constants: Callable[[], Mapping[str, Tensor]] = dict,
) -> TfFunction:
    """A function of the feeds that returns the fetched tensors and, when all is done, a 0."""

    def body(*arguments: Tensor) -> list[Tensor]:
        input_map = {**constants(), **dict(zip(feeds, arguments, strict=True))}
        tf.graph_util.import_graph_def(graph_def, input_map, name="")
        fetched = fetch(v1.get_default_graph())
        is_tensor = [isinstance(element, tf.Tensor) for element in fetched]
        tensors = [e for e, keep in zip(fetched, is_tensor, strict=True) if keep]
        with v1.control_dependencies(fetched):
            done = tf.constant(0)
        return [*tensors, done]

    values = [tf.convert_to_tensor(value) for value in feeds.values()]
    signature = [tf.TensorSpec(value.shape, value.dtype) for value in values]
    return v1.wrap_function(body, signature)


def _variables_of(graph_def: GraphDef) -> GraphDef:
    """A GraphDef of the variables alone."""
    variables = v1.GraphDef(versions=graph_def.versions)
    variables.node.extend(variable_nodes(graph_def).values())
    return variables


def _assign_function(graph_def: GraphDef, names: Iterable[str]) -> TfFunction:
    """A function that gives variables the values that it is called with."""
    known = variable_nodes(graph_def)
    nodes = [known[name] for name in names]

    def body(*arguments: Tensor) -> Tensor:
        tf.graph_util.import_graph_def(_variables_of(graph_def), name="")
        graph = v1.get_default_graph()
        variables = [graph.get_tensor_by_name(f"{node.name}:0") for node in nodes]
        with v1.control_dependencies(list(map(assigned, variables, arguments))):
            return tf.constant(0)

    # Without a shape: the whole of what is in pieces is empty.
    signature = [tf.TensorSpec(None, node.attr["dtype"].type) for node in nodes]
    return v1.wrap_function(body, signature)


def _session_config(runtime: RuntimeConfig) -> SessionConfig:
    config = v1.ConfigProto(
        allow_soft_placement=runtime.soft_placement, device_count={"CPU": runtime.num_logical_cpus}
    )
    if runtime.gpu_memory_bytes:  # as tf.config has split it for functions
        virtual = config.gpu_options.experimental.virtual_devices
        virtual.add().memory_limit_mb.extend(m // 2**20 for m in runtime.gpu_memory_bytes)
        for _ in tf.config.list_physical_devices("GPU")[1:]:  # a Session wants one entry for each
            virtual.add()
    return config
