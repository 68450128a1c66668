"""Asks TensorFlow's own Grappler what each op computes and moves.

Grappler's analytical estimator prices an op as flops / peak + bytes / bandwidth, and rounds the
seconds to whole microseconds. Asked about a device of one flop and one byte per microsecond it
therefore gives the flops and bytes themselves, without rounding, and one pass serves every device.
A test holds that against Grappler's own price for a K80. Its scheduler's makespan is not used,
because it takes transfers between devices as free (the contract, section 6).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.same_shapes import without_same
from graphs.building.shapes import TensorProperties, with_feeds_as_placeholders
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.host.asked_child import ChildError, ask_child
from graphs.names import data_inputs, op_of, parse_input
from graphs.op_graph import FloatArray
from graphs.source_model import TensorSpec
from graphs.tensor_protos import shape_of

PRICING_SECONDS = 600.0
"""Longest that Grappler may take; 170,000 ops take 20 s."""

_PROCESS = "graphs.pricing.grappler_process"
_NANOSECONDS_PER_UNIT = 1000
# Any device's name does but a GPU's: about GPUs Grappler asks the driver, once for each op.
_DEVICE_NAME = "/job:localhost/replica:0/task:0/device:CPU:0"
_UNFILLED, _MANY_ELEMENTS = "ImmutableConst", 1 << 16
"""Grappler makes a tensor for each Placeholder and writes all its elements: 2.2 GB for a batch of
2,048 images, twice the memory of everything else. This op says its shape, too, and gets none."""


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
    A graph that Grappler refuses or dies of gets no prices, and a note that says why.

    Args:
      flat: the graph.
      properties: of its tensors.
    """
    graph_def, first = flat.graph_def, properties.first
    feeds = [*(spec for spec in flat.feeds if spec.shape is not None), *properties.bounds]
    own = np.arange(len(graph_def.node))
    if first is None or (first == own).all():  # control edges, too, hold a loop's constants in it
        return _estimate(graph_def, feeds, properties)
    work = _estimate(without_same(graph_def, first), feeds, properties)
    row = np.cumsum(first == own)[first] - 1
    return OpWork(work.flops[row], work.memory_bytes[row], work.notes)


def _estimate(graph_def: Any, feeds: Sequence[TensorSpec], properties: TensorProperties) -> OpWork:
    nodes = graph_def.node
    unpriced = np.full(len(nodes), np.nan)
    result = _ask(with_feeds_as_placeholders(graph_def, feeds))
    notes = []
    if unknown := result.get("unknown_op_types"):
        notes.append(f"Grappler knows no op type {', '.join(unknown)}")
        foreign = {node.name for node in nodes if node.op in unknown}
        result = _ask(_without(graph_def, feeds, foreign, properties))
    if "error" in result:
        notes.append(f"Grappler priced nothing: {result['error']}")
        return OpWork(unpriced, unpriced.copy(), notes)
    return _work(nodes, result["op_performance"], notes)


def with_defaults(flat: FlatGraph, properties: TensorProperties, work: OpWork) -> OpWork:
    """Fills in nodes without a price: no flops, and all inputs and outputs moved once."""
    flops, memory_bytes = work.flops.copy(), work.memory_bytes.copy()
    nodes = flat.graph_def.node
    for i in np.flatnonzero(np.isnan(flops)):
        moved = sum(properties.bytes_of.get(nodes[i].name, ()))
        for source in map(parse_input, data_inputs(nodes[i])):
            sizes = properties.bytes_of.get(source.op, ())
            moved += sizes[source.output] if source.output < len(sizes) else 0
        flops[i], memory_bytes[i] = 0.0, float(moved)
    return OpWork(flops, memory_bytes, work.notes)


def _work(nodes: Sequence[Any], performance: Sequence[bytes], notes: Sequence[str]) -> OpWork:
    """The work of all nodes in Grappler's answer, serialized OpPerformance messages."""
    from tensorflow.core.grappler.costs import op_performance_data_pb2

    index = {node.name: i for i, node in enumerate(nodes)}
    flops, memory_bytes = np.full(len(nodes), np.nan), np.full(len(nodes), np.nan)
    priced = op_performance_data_pb2.OpPerformance()
    for serialized in performance:
        priced.ParseFromString(serialized)
        i = index.get(priced.node)
        if i is None:
            continue
        if priced.op.op == _UNFILLED != nodes[i].op:  # Grappler takes a Placeholder for nothing
            flops[i] = memory_bytes[i] = 0.0
        else:
            flops[i], memory_bytes[i] = priced.compute_time, priced.memory_time
    return OpWork(flops / _NANOSECONDS_PER_UNIT, memory_bytes / _NANOSECONDS_PER_UNIT, notes)


def _unfilled(graph_def: Any) -> None:
    """Puts what says a shape, and no more, in place of large placeholders."""
    for node in graph_def.node:
        if node.op != "Placeholder" or "shape" not in node.attr:
            continue
        shape = shape_of(node.attr["shape"].shape)
        if shape and min(shape) > 0 and math.prod(shape) >= _MANY_ELEMENTS:
            node.op = _UNFILLED
            node.attr["memory_region_name"].s = b"none"


def _ask(graph_def: Any) -> Mapping[str, Any]:
    """Runs the pricing process on a GraphDef of ours; {"error": ...} where it fails or dies."""
    from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2

    _unfilled(graph_def)
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(_sinks(graph_def))
    unit = device_properties_pb2.DeviceProperties(
        type="CPU", num_cores=1, frequency=1, bandwidth=1000, memory_size=1 << 60
    )
    device = device_properties_pb2.NamedDevice(name=_DEVICE_NAME, properties=unit)
    op_types = {node.op for node in graph_def.node} - library_of(graph_def).keys()
    request = {
        "meta_graph": meta_graph.SerializeToString(),
        "device": device.SerializeToString(),
        "op_types": sorted(op_types),
    }
    return run_grappler(request)


def list_devices() -> list[Any]:
    """The NamedDevices of this host, with CUDA's figures of its GPUs; none where Grappler fails."""
    from tensorflow.core.protobuf import device_properties_pb2

    return [
        device_properties_pb2.NamedDevice.FromString(serialized)
        for serialized in run_grappler({}).get("devices", ())
    ]


def run_grappler(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answers a request of `grappler_process` in a process; {"error"} where that fails."""
    try:
        answer: Mapping[str, Any] = ask_child(_PROCESS, request, PRICING_SECONDS)
    except ChildError as error:
        return {"error": str(error)}
    return answer


def _sinks(graph_def: Any) -> list[str]:
    """The nodes that nothing uses. Grappler prices what they need, which is the whole graph."""
    used = {op_of(source) for node in graph_def.node for source in node.input}
    sinks = [node.name for node in graph_def.node if node.name not in used]
    return sinks or [node.name for node in graph_def.node[-1:]]


def _without(
    graph_def: Any,
    feeds: Sequence[TensorSpec],
    foreign: Collection[str],
    properties: TensorProperties,
) -> Any:
    """The graph with placeholders of the inferred shapes in place of foreign ops' outputs."""
    outputs = [
        TensorSpec(f"{name}:{index}", dtype, shape)
        for name in sorted(foreign)
        for index, (dtype, shape) in enumerate(
            zip(properties.dtype_of[name], properties.shape_of[name], strict=True)
        )
    ]
    graph = with_feeds_as_placeholders(graph_def, [*feeds, *outputs])
    kept = [node for node in graph.node if node.name not in foreign]
    bare = type(graph)(library=graph.library, versions=graph.versions)
    for node in kept:
        copy = bare.node.add()
        copy.CopyFrom(node)
        inputs = [source for source in node.input if op_of(source) not in foreign]
        del copy.input[:]
        copy.input.extend(inputs)
    return bare
