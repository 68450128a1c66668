"""Asks TensorFlow's own Grappler what each op computes and moves.

Grappler's analytical estimator prices an op as flops / peak + bytes / bandwidth, and rounds the
seconds to whole microseconds. Asked about a device of one flop and one byte per microsecond it
therefore gives the flops and bytes themselves, without rounding, and one pass serves every device.
A test holds that against Grappler's own price for a K80. Its scheduler's makespan is not used,
because it takes transfers between devices as free (the contract, section 6).

Grappler is never asked to infer a shape. Left to itself it knows less than TensorFlow's C++ shape
functions, and an unknown dimension counts there as 1, or as a number below -1, without a word. So
each op is asked about alone, with inputs and outputs of the shapes that `TensorProperties` knows;
an op that has a tensor of unknown size is not asked about.
"""

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.same_shapes import bare
from graphs.building.shapes import LARGE_CONSTANT_BYTES, TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.asked_child import ChildError, ask_child
from graphs.names import data_inputs, op_of, source_of, tensor_of
from graphs.op_graph import FloatArray
from graphs.protos import GraphDef, Library, Message, NodeDef, Pickled, placeholder

PRICING_SECONDS = 600.0
"""Longest that Grappler may take; 10,000 kinds of ops take 2 s."""

_PROCESS = "graphs.pricing.grappler_process"
_NANOSECONDS_PER_UNIT = 1000
# Any device's name does but a GPU's: about GPUs Grappler asks the driver, once for each op.
_DEVICE_NAME = "/job:localhost/replica:0/task:0/device:CPU:0"
_KIND = "kind"
_UNFILLED = "ImmutableConst"
"""Grappler makes a tensor for each Placeholder and writes all its elements: 2.2 GB for a batch of
2,048 images, twice the memory of everything else. This op says its shape, too, and gets none."""
_WHOLE_NUMBERS = frozenset({"int32", "int64"})


@dataclasses.dataclass(frozen=True)
class OpWork:
    """What the nodes of a flat graph compute and move, each run once.

    Attributes:
      flops: f8[nodes]; nan where Grappler did not price the node.
      memory_bytes: f8[nodes] read and written; nan where Grappler did not price the node.
      notes: sentences about what Grappler could not do.
    """

    flops: FloatArray
    memory_bytes: FloatArray
    notes: Sequence[str]


def estimate(flat: FlatGraph, properties: TensorProperties) -> OpWork:
    """Asks Grappler, in a process of its own, what every node computes and moves.

    It is asked about one node of each kind: what it says hangs on type, attributes and shapes.
    Nodes that only hand a buffer on do nothing. What runs functions moves its tensors; the work
    inside is priced elsewhere. A question that Grappler refuses or dies of gets no prices, and a
    note that says why.
    """
    nodes, first = flat.graph_def.node, properties.first
    kinds = _Kinds(flat, properties)
    kind = np.full(len(nodes), -1)
    flops, memory_bytes = np.zeros(len(nodes)), np.zeros(len(nodes))
    own = np.arange(len(nodes))
    first = own if first is None else first
    for i in np.flatnonzero(first == own).tolist():
        node = nodes[i]
        if node.op in op_types.NO_LAUNCH:
            continue
        if kinds.has_unknown_size(node):
            flops[i] = memory_bytes[i] = np.nan
        elif _runs_functions(node, flat.library):
            memory_bytes[i] = _moved(node, properties)
        else:
            kind[i] = kinds.number(node)
    of_kind, notes = _answered(kinds, flat.graph_def.versions)
    asked = kind >= 0
    flops[asked], memory_bytes[asked] = of_kind[kind[asked]].T
    return OpWork(flops[first], memory_bytes[first], notes)


def with_defaults(flat: FlatGraph, properties: TensorProperties, work: OpWork) -> OpWork:
    """Fills in nodes without a price: no flops, and all inputs and outputs moved once."""
    flops, memory_bytes = work.flops.copy(), work.memory_bytes.copy()
    nodes = flat.graph_def.node
    for i in np.flatnonzero(np.isnan(flops)):
        flops[i], memory_bytes[i] = 0.0, _moved(nodes[i], properties)
    return OpWork(flops, memory_bytes, work.notes)


def _moved(node: NodeDef, properties: TensorProperties) -> float:
    """Bytes of all inputs and outputs of a node."""
    read = sum(properties.num_bytes(tensor) for tensor in data_inputs(node))
    return float(read + sum(properties.bytes_of[node.name]))


def _runs_functions(node: NodeDef, library: Library) -> bool:
    return node.op in library or any(
        value.HasField("func") or value.list.func for value in node.attr.values()
    )


class _Kinds:
    """The kinds of nodes that Grappler is asked about, each apart from the graph.

    What it reads says a dtype and a shape, and no more. Small whole numbers stay, since they say
    axes and sizes; so do variables' handles, which say the variables' shapes.

    Attributes:
      nodes: what is read, and one node of each kind, named `_KIND` and its number.
      output_bytes: of each kind, by number.
      moved_bytes: of all that each kind reads and makes.
    """

    def __init__(self, flat: FlatGraph, properties: TensorProperties):
        self._of_name = flat.nodes
        self._properties = properties
        self._unknown = frozenset(properties.unknown)
        self._number: dict[tuple[bytes, tuple[str, ...]], int] = {}
        self._reads: dict[bytes, str] = {}
        self.nodes: list[NodeDef] = []
        self.output_bytes: list[list[int]] = []
        self.moved_bytes: list[float] = []

    def has_unknown_size(self, node: NodeDef) -> bool:
        """Whether a run decides the size of a tensor that the node reads or makes."""
        outputs = range(len(self._properties.shape_of[node.name]))
        tensors = [*(f"{node.name}:{i}" for i in outputs), *map(tensor_of, data_inputs(node))]
        return not self._unknown.isdisjoint(tensors)

    def number(self, node: NodeDef) -> int:
        """The number of the node's kind."""
        inputs = tuple(map(self._read, data_inputs(node)))
        key = (bare(node), inputs)
        if key not in self._number:
            self._number[key] = len(self._number)
            self._add(node, f"{_KIND}{self._number[key]}").input.extend(inputs)
            self.output_bytes.append(self._properties.bytes_of[node.name])
            self.moved_bytes.append(_moved(node, self._properties))
        return self._number[key]

    def _read(self, tensor: str) -> str:
        """The name of what stands for a tensor."""
        node = self._of_name[op_of(tensor)]
        dtype, shape = self._properties.dtype(tensor), self._properties.shape(tensor)
        if dtype == "resource":
            node = self._of_name[op_of(source_of(tensor, self._of_name, op_types.HANDLE))]
        known = self._properties.known_of(tensor).exact
        is_small = node.op == "Const" and node.ByteSize() <= LARGE_CONSTANT_BYTES
        if known:
            node = type(node).FromString(known)
        elif not (node.op == "VarHandleOp" or (is_small and dtype in _WHOLE_NUMBERS)):
            node = placeholder("", dtype, shape)
            node.op = _UNFILLED
            node.attr["memory_region_name"].s = b"none"
        what = bare(node)
        if what not in self._reads:
            self._reads[what] = self._add(node, f"read{len(self._reads)}").name
        return self._reads[what]

    def _add(self, node: NodeDef, name: str) -> NodeDef:
        """Adds a copy of this name that reads nothing and wishes for no place."""
        copy = type(node).FromString(bare(node))
        copy.name = name
        self.nodes.append(copy)
        return copy


def _answered(kinds: _Kinds, versions: Message) -> tuple[FloatArray, list[str]]:
    """f8[kinds, 2]: flops and bytes of each kind, nan where there are none; and notes."""
    from tensorflow.core.grappler.costs import op_performance_data_pb2

    work = np.full((len(kinds.output_bytes), 2), np.nan)
    notes = []
    result = _ask(kinds.nodes, versions)
    if unknown := result.get("unknown_op_types"):
        notes.append(f"Grappler knows no op type {', '.join(unknown)}")
        result = _ask([node for node in kinds.nodes if node.op not in unknown], versions)
    if "error" in result:
        return work, [*notes, f"Grappler priced nothing: {result['error']}"]
    priced = op_performance_data_pb2.OpPerformance()
    for serialized in result["op_performance"]:
        priced.ParseFromString(serialized)
        if not priced.node.startswith(_KIND):
            continue
        number = int(priced.node.removeprefix(_KIND))
        # What it makes Grappler infers, and may not know the elements that say its size.
        if _is_size(priced.op_memory.output_memory, kinds.output_bytes[number]):
            work[number] = priced.compute_time, priced.memory_time
        elif not priced.compute_time:
            work[number] = 0.0, kinds.moved_bytes[number] * _NANOSECONDS_PER_UNIT
    work[(work < 0.0).any(axis=1)] = np.nan  # it counted beyond 63 bits
    return work / _NANOSECONDS_PER_UNIT, notes


def _is_size(found: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether Grappler took the outputs for as large as they are.

    It takes an unknown dimension, and one of 0, for 1, and what is no number for nothing.
    """
    return all(not a or a >= b for a, b in zip(found, wanted, strict=False))


def _ask(nodes: Sequence[NodeDef], versions: Message) -> Mapping[str, Pickled]:
    """Runs the pricing process on NodeDefs; {"error": ...} where it fails or dies."""
    kinds = [node.name for node in nodes if node.name.startswith(_KIND)]
    if not kinds:
        return {"op_performance": []}
    return run_grappler(_request(tf.compat.v1.GraphDef(node=nodes, versions=versions), kinds))


def _request(graph_def: GraphDef, fetched: Iterable[str]) -> dict[str, Pickled]:
    """What `grappler_process` is asked of a graph of which some ops are fetched."""
    from tensorflow.core.protobuf import device_properties_pb2

    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(fetched)
    unit = device_properties_pb2.DeviceProperties(
        type="CPU", num_cores=1, frequency=1, bandwidth=1000, memory_size=1 << 60
    )
    device = device_properties_pb2.NamedDevice(name=_DEVICE_NAME, properties=unit)
    return {
        "meta_graph": meta_graph.SerializeToString(),
        "device": device.SerializeToString(),
        "op_types": sorted({node.op for node in graph_def.node}),
    }


def optimized(flat: FlatGraph, properties: TensorProperties) -> GraphDef | None:
    """What Grappler makes of a step before it is run; None where it fails.

    In what order it lists ops hangs on how a step begins and ends. So this one is a function as in
    a real run: what is fed are its arguments, a last constant waits for all that is fetched, and it
    returns that one, too.

    Folding constants runs ops without effects: for a graph that is run anyway.
    """
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    step = copy.deepcopy(flat.graph_def)
    index = {op_of(feed.tensor): i for i, feed in enumerate(flat.feeds)}
    for node in step.node:
        if node.op in op_types.PLACEHOLDERS and node.name in index:
            node.ClearField("input")
            _become(node, "_Arg", properties.dtype(f"{node.name}:0"), index[node.name])
    with tf.Graph().as_default() as graph:
        for node in step.node:
            graph.unique_name(node.name)
        done = tf.constant(0).op.node_def
    done.input.extend(f"^{op_of(name)}" for name in flat.fetches)
    step.node.append(done)
    dtypes = {name: properties.dtype(name) for name in flat.fetches if ":" in name}
    dtypes[done.name] = "int32"
    returned = []
    for i, (name, dtype) in enumerate(dtypes.items()):
        plain = re.sub(r"\W", "_", op_of(name)).lower()
        returned.append(graph.unique_name(f"{plain}_RetVal"))  # an op may return several
        node = step.node.add(name=returned[i], input=[name.removesuffix(":0")])
        _become(node, "_Retval", dtype, i)
    for node in step.node:
        node.device = _DEVICE_NAME  # on no device Grappler fuses nothing
    request = _request(step, returned)
    made = run_grappler({**request, "config": config.SerializeToString()}).get("optimized")
    return None if made is None else type(flat.graph_def).FromString(made)


def _become(node: NodeDef, op: str, dtype: str, index: int) -> None:
    """Makes a node an end of a function."""
    node.ClearField("attr")
    node.op = op
    node.attr["T"].type = tf.as_dtype(dtype).as_datatype_enum
    node.attr["index"].i = index


def list_devices() -> list[Message]:
    """The NamedDevices of this host, with CUDA's figures of its GPUs; none where Grappler fails."""
    from tensorflow.core.protobuf import device_properties_pb2

    return [
        device_properties_pb2.NamedDevice.FromString(serialized)
        for serialized in run_grappler({}).get("devices", ())
    ]


def run_grappler(request: Mapping[str, Pickled]) -> Mapping[str, Pickled]:
    """Answers a request of `grappler_process` in a process; {"error"} where that fails."""
    try:
        answer: Mapping[str, Pickled] = ask_child(_PROCESS, request, PRICING_SECONDS)
    except ChildError as error:
        return {"error": str(error)}
    return answer
