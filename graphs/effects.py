"""What a graph does outside of the process that runs it, and the graph without that.

Runs of tfplace's own must leave nothing in a user's folders and logs, and they run copies of the
graph. So what writes there is cut out of the copies; what is emitted keeps it. A cut op keeps its
name, its device and what waits for it. What it reads is computed still, and brought to where it
is: an Assert that holds takes the tensors.
"""

import collections
import copy
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from graphs.building.known_tensors import constant_node
from graphs.building.op_outputs import argument_types
from graphs.function_library import bodies, reached_functions
from graphs.graph_view import GraphView
from graphs.names import data_inputs, op_of
from graphs.op_types import PYTHON, WRITES, WRITES_AND_HANDS_ON
from graphs.protos import GraphDef, MetaGraphDef, NodeDef
from graphs.source_model import SourceModel


def without_effects(graph_def: GraphDef) -> GraphDef:
    """A copy in which nothing acts outside of the process; the graph itself where nothing does."""
    if not any(_acting(nodes) for _, nodes in bodies(graph_def)):
        return graph_def
    cut = copy.deepcopy(graph_def)
    for function, nodes in bodies(cut):
        end = ":output:0" if function else ""  # of a name in an input
        names = {node.name for node in nodes}
        for node in _acting(nodes):
            if node.op in WRITES_AND_HANDS_ON:
                _hand_on(node)
            else:
                nodes.extend(_only_read(node, names, end))
    return cut


def left_out(source: SourceModel) -> dict[str, int]:
    """{op type: how many ops} of what a run of a model does outside of the process."""
    if not any(_acting(nodes) for _, nodes in bodies(source.graph_def)):
        return {}
    view = GraphView(source.graph_def)
    main = [view.nodes[name] for name in view.ancestors(source.fetches)]
    run = [main, *(view.library[f].node_def for f in reached_functions(main, view.library))]
    return dict(sorted(collections.Counter(n.op for each in run for n in _acting(each)).items()))


def left_out_sentence(ops: Mapping[str, int]) -> str:
    """What `left_out` says, in words; empty where it says nothing."""
    types = ", ".join(f"{count} {op_type}" for op_type, count in ops.items())
    they_act = "it acts" if sum(ops.values()) == 1 else "they act"
    return types and f"left out of tfplace's own runs: {types} ({they_act} outside of the program)"


def acts_when_loaded(meta_graph: MetaGraphDef) -> bool:
    """Whether a model's signatures or its loading may act outside of the process.

    What only the saver reaches does not count: nothing of ours saves.
    """
    if not any(_acting(nodes) for _, nodes in bodies(meta_graph.graph_def)):
        return False
    view, save = GraphView(meta_graph.graph_def), meta_graph.saver_def.save_tensor_name
    saver = set(view.ancestors([save])) if op_of(save) in view.nodes else set()
    main = [node for name, node in view.nodes.items() if name not in saver]
    only_saves = set(reached_functions([view.nodes[name] for name in saver], view.library))
    only_saves.difference_update(reached_functions(main, view.library))
    others = [f.node_def for name, f in view.library.items() if name not in only_saves]
    return any(map(_acting, (main, *others)))


def acts_outside(node: NodeDef) -> bool:
    """Whether an op may act outside of the process, by itself.

    What Python returns is known to no other process: such an op fails there, and stays.
    """
    if node.op in PYTHON:
        return not node.attr["Tout"].list.type
    return node.op in WRITES or node.op in WRITES_AND_HANDS_ON


def _acting(nodes: Iterable[NodeDef]) -> list[NodeDef]:
    """Those of a body's NodeDefs that act outside of the process."""
    found = [node for node in nodes if acts_outside(node)]
    caches = {op_of(node.input[1]) for node in found if node.op.startswith("Cache")}
    in_memory = {
        node.name
        for node in (nodes if caches else ())
        if node.name in caches and node.attr["value"].tensor.string_val == [b""]
    }
    return [n for n in found if n.op[:5] != "Cache" or op_of(n.input[1]) not in in_memory]


def _only_read(node: NodeDef, names: set[str], end: str) -> list[NodeDef]:
    """Has an op without outputs read what it has read, and no more; returns a constant for that."""
    from tensorflow.core.framework.types_pb2 import DT_RESOURCE, DT_VARIANT

    typed = zip(data_inputs(node), argument_types(node, {}), strict=True)
    read = {name: number for name, number in typed if number not in (DT_RESOURCE, DT_VARIANT)}
    controls = [name for name in node.input if name.startswith("^")]
    if not read:
        _become(node, "NoOp", controls)
        return []
    true = constant_node(f"{node.name}/tfplace_true", np.array(True))
    true.device = node.device
    # In the frame of a loop a constant has to wait for something of that frame.
    true.input.extend([f"^{op_of(name)}" for name in read if op_of(name) in names][:1])
    _become(node, "Assert", [true.name + end, *read, *controls])
    node.attr["T"].list.type.extend(read.values())
    return [true]


def _hand_on(node: NodeDef) -> None:
    """Has an op whose output is its first input only hand that on."""
    is_data = "Dataset" in node.op
    kept = ("output_types", "output_shapes") if is_data else ("T",)
    inputs = [node.input[0], *(name for name in node.input if name.startswith("^"))]
    _become(node, "NonSerializableDataset" if is_data else "Identity", inputs, kept)


def _become(node: NodeDef, op_type: str, inputs: Sequence[str], kept: Sequence[str] = ()) -> None:
    """Makes it another op of the same name, device and colocation."""
    node.op = op_type
    node.input[:] = inputs
    for key in node.attr.keys() - {*kept, "_class"}:
        del node.attr[key]
