"""The variables of a graph, and which of them training changes."""

from collections.abc import Collection, Iterator

from graphs import op_types
from graphs.by_key import by_key
from graphs.function_library import callees
from graphs.graph_view import GraphView
from graphs.loading.variable_updates import OptimizerUpdates
from graphs.names import data_inputs, op_of
from graphs.protos import MetaGraphDef, NodeDef, ObjectGraph, attribute, dtype_name, shape_of
from graphs.source_model import Variable

_LOOKS_ONLY = frozenset({"ReadVariableOp", "VarIsInitializedOp", "IsVariableInitialized"})
_TRAINABLE_COLLECTION = "trainable_variables"


def find_variables(
    view: GraphView, meta_graph: MetaGraphDef, updates: OptimizerUpdates
) -> tuple[Variable, ...]:
    """All variables of the main graph that something uses.

    Exported Keras models also hold variables that only ops without users read; these are left out.
    A variable is trainable if the collection TRAINABLE_VARIABLES has it. Without that collection
    the object graph says what is trainable. Without an object graph it is what an optimizer trains.
    """
    ops = used_variables(view)
    trainable = _from_collection(view, meta_graph)
    if trainable is None:
        trainable = _from_objects(view, meta_graph, ops)
    if trainable is None:
        trainable = {variable for trained in updates.variables_of.values() for variable in trained}
    return tuple(_variable(view.nodes[op], trainable) for op in ops)


def used_variables(view: GraphView) -> list[str]:
    """The variable ops that have a user; an op that reads them for nobody is no user."""
    return [
        name
        for name, node in view.nodes.items()
        if node.op in op_types.VARIABLES
        and any(
            view.users[user] or view.nodes[user].op not in _LOOKS_ONLY for user in view.users[name]
        )
    ]


def _variable(node: NodeDef, trainable: Collection[str]) -> Variable:
    return Variable(
        name=attribute(node, "shared_name").s.decode("utf-8", "replace") or node.name,
        op=node.name,
        dtype=dtype_name(node.attr["dtype"].type, f"variable {node.name!r}"),
        shape=shape_of(node.attr["shape"].shape) or (),
        trainable=node.name in trainable,
    )


def _from_collection(view: GraphView, meta_graph: MetaGraphDef) -> set[str] | None:
    """The variable ops in the collection; None where the model has no such collection."""
    if meta_graph is None or _TRAINABLE_COLLECTION not in meta_graph.collection_def:
        return None
    from google.protobuf import message
    from tensorflow.core.framework import variable_pb2

    trainable = set()
    for packed in meta_graph.collection_def[_TRAINABLE_COLLECTION].bytes_list.value:
        definition = variable_pb2.VariableDef()
        try:
            definition.ParseFromString(packed)
        except message.DecodeError:
            continue  # a collection of the user's own that has this name
        if op_of(definition.variable_name) in view.nodes:
            trainable.add(view.variable_of(definition.variable_name))
    return trainable - {""}


def _from_objects(view: GraphView, meta_graph: MetaGraphDef, ops: list[str]) -> set[str] | None:
    """The variable ops that the object graph calls trainable; None where there is none."""
    if meta_graph is None or not meta_graph.HasField("object_graph_def"):
        return None
    objects = meta_graph.object_graph_def
    captured = dict(captured_objects(view, objects))
    saved_variables = (node.variable for node in objects.nodes if node.HasField("variable"))
    by_name = by_key((variable.name, variable) for variable in saved_variables)
    trainable = set()
    for op in ops:
        if op in captured:
            saved = [objects.nodes[captured[op]].variable]
        else:
            shared = attribute(view.nodes[op], "shared_name").s.decode("utf-8", "replace")
            saved = by_name.get(shared, []) or by_name.get(op, [])
        if any(variable.trainable for variable in saved):
            trainable.add(op)
    return trainable


def captured_objects(view: GraphView, objects: ObjectGraph) -> Iterator[tuple[str, int]]:
    """(variable op, number of its object) pairs, found by what the functions of calls are bound to.

    Names can't tell which variable is which, because many variables may be called "kernel".
    """
    for node in view.graph_def.node:
        for function, _ in callees(node, view.library):
            for tensor, object_id in bound_inputs(node, function, objects):
                op = view.variable_of(tensor)
                if op and objects.nodes[object_id].HasField("variable"):
                    yield op, object_id


def bound_inputs(node: NodeDef, function: str, objects: ObjectGraph) -> Iterator[tuple[str, int]]:
    """(tensor, number of its object) of a call: its last inputs, what its function captured."""
    if function not in objects.concrete_functions:
        return
    bound = list(objects.concrete_functions[function].bound_inputs)
    inputs = data_inputs(node)
    if bound and len(bound) <= len(inputs):
        for tensor, object_id in zip(inputs[-len(bound) :], bound, strict=True):
            if object_id < len(objects.nodes):
                yield tensor, object_id
