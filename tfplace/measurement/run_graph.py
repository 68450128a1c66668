"""Makes the graph of a run ready for timing: adds its initialization, completes its devices.

Works on GraphDefs alone; only the child process that runs them imports this.
"""

import copy
from collections.abc import Iterable, Mapping

from tensorflow.core.framework.graph_pb2 import GraphDef

from graphs import function_library
from graphs.graph_view import reached
from graphs.names import op_of, with_index
from graphs.protos import NodeDef, attribute
from graphs.source_model import Initialization
from tfplace.measurement.device_name import complete_device

_COLOCATION = b"loc:@"
_DECLARES_CONTAINER = frozenset({"VarHandleOp", "VariableV2", "Variable"})


def prepare_run_graph(
    run_graph: GraphDef,
    source_graph: GraphDef,
    initialization: Initialization,
    default_device: str,
    container: str,
) -> GraphDef:
    """The run graph with the ops that initialise its variables, as a new GraphDef.

    Ops that only the initialization needs lose their device: TensorFlow puts them beside the
    variables that they set. Variables go into a container of their own, and functions get names
    of their own, so that variants of a graph in one process don't share them.

    Args:
      source_graph: GraphDef that holds the initialization's ops; may be run_graph.
      default_device: whose task a device string without a job means.
    """
    merged = copy.deepcopy(run_graph)
    present = {node.name for node in merged.node}
    init_ops = [*initialization.init_ops, *filter(None, [initialization.restore_op])]
    for node in subgraph(source_graph, init_ops, ()).node:
        if node.name not in present:
            merged.node.add().CopyFrom(node)
            merged.node[-1].device = ""
    function_library.add_functions(merged, source_graph)
    for _, nodes in function_library.bodies(merged):
        for node in nodes:
            if node.device:
                node.device = complete_device(node.device, default_device)
            if node.op not in _DECLARES_CONTAINER:
                continue
            node.attr["container"].s = container.encode()
            if not attribute(node, "shared_name").s:
                node.attr["shared_name"].s = node.name.encode()
    _name_functions(merged, container.replace(".", "_"))
    _drop_dangling_colocation(merged)
    return merged


def subgraph(graph_def: GraphDef, fetches: Iterable[str], feeds: Iterable[str]) -> GraphDef:
    """What the fetches need when the feeds are given, and the functions that this calls.

    Raises:
      KeyError: a fetch or an input is not in the graph.
    """
    nodes = {node.name: node for node in graph_def.node}
    cut = {with_index(feed) for feed in feeds}

    def reads(name: str) -> Iterable[str]:
        inputs = nodes[name].input
        return (op_of(i) for i in inputs if i.startswith("^") or with_index(i) not in cut)

    needed = reached(map(op_of, fetches), reads)
    pruned = GraphDef(versions=graph_def.versions)
    pruned.node.extend(node for node in graph_def.node if node.name in needed)
    library = function_library.library_of(graph_def)
    if graph_def.library.gradient:  # they name functions, too
        pruned.library.CopyFrom(graph_def.library)
    else:
        called = function_library.reached_functions(pruned.node, library)
        pruned.library.function.extend(library[name] for name in called)
    _drop_dangling_colocation(pruned)
    return pruned


def used_tensors(graph_def: GraphDef) -> set[str]:
    """Names "op:i" of all tensors that some op of the main graph takes."""
    return {
        with_index(name)
        for node in graph_def.node
        for name in node.input
        if not name.startswith("^")
    }


def variable_nodes(graph_def: GraphDef) -> Mapping[str, NodeDef]:
    """{name: NodeDef} of the main graph's variables, by shared name."""
    return {
        attribute(node, "shared_name").s.decode() or node.name: node
        for node in graph_def.node
        if node.op in _DECLARES_CONTAINER
    }


def _name_functions(graph_def: GraphDef, suffix: str) -> None:
    """A runtime knows a function by its name, and refuses another of the same name."""
    library = graph_def.library
    new = {f.signature.name: f"{f.signature.name}_{suffix}" for f in library.function}
    for function in library.function:
        function.signature.name = new[function.signature.name]
    for gradient in library.gradient:
        gradient.function_name = new.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new.get(gradient.gradient_func, gradient.gradient_func)
    for _, nodes in function_library.bodies(graph_def):
        for node in nodes:
            function_library.rename_references(node, new)


def _drop_dangling_colocation(graph_def: GraphDef) -> None:
    """Removes colocation with ops that are not in the graph, which an import refuses."""
    names = {node.name for node in graph_def.node}
    for node in graph_def.node:
        if "_class" in node.attr:
            classes = node.attr["_class"].list.s
            classes[:] = [
                value
                for value in classes
                if not value.startswith(_COLOCATION) or value[len(_COLOCATION) :].decode() in names
            ]
