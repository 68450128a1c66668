"""How the variables of a graph get their values before the first run."""

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.graph_view import GraphView
from graphs.loading.model_variables import captured_objects, used_variables
from graphs.loading.saved_model_file import asset_feeds, checkpoint_prefix, main_ops
from graphs.names import data_inputs, op_of
from graphs.protos import Message, MetaGraphDef, attribute
from graphs.source_model import Initialization

_INIT_NAME = re.compile(
    r"(.*/)?(init|init_all_(vars|tables)|(global_variables|tables)_initializer)(_\d+)?"
)
FILLS = re.compile(r"InitializeTable\w*|LookupTableImport\w*|MakeIterator")
_FIRST_ASSIGN = frozenset({"Assign", "AssignVariableOp"})
_RESTORE = frozenset({"Restore", "RestoreV2", "RestoreSlice"})
_OBJECTS_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
_OF_A_SAVER = op_types.VARIABLES | op_types.CALLS | op_types.MUST_BE_FED | {"Const"}


def of_saved_model(view: GraphView, meta_graph: MetaGraphDef, directory: str) -> Initialization:
    """How a SavedModel's variables start: from its checkpoint, as TensorFlow's loader has it."""
    saver = meta_graph.saver_def
    prefix = checkpoint_prefix(meta_graph, directory)
    init_ops = [name for name in main_ops(meta_graph) if name in view.nodes]
    has_saver = bool(prefix) and saver.restore_op_name in view.nodes
    ready = [*init_ops, saver.restore_op_name] if has_saver else init_ops
    return Initialization(
        init_ops=tuple(init_ops),
        restore_op=saver.restore_op_name if has_saver else "",
        filename_tensor=saver.filename_tensor_name if has_saver else "",
        checkpoint_prefix=prefix if has_saver else "",
        asset_feeds=asset_feeds(meta_graph, directory, view.ancestors(init_ops)),
        random_variables=_not_covered(view, ready),
    )


def with_saved_variables(
    start: Initialization, view: GraphView, meta_graph: MetaGraphDef
) -> Initialization:
    """With the values that TensorFlow 2 saved: its loader finds them by objects, not by a saver.

    The saver of such a model may restore copies of the variables that no run uses, or leave some
    out. Its op stays only where it restores something else, too, such as a table.

    Args:
      start: as `of_saved_model` gives it, its files whole.
    """
    if not start.checkpoint_prefix or not meta_graph.HasField("object_graph_def"):
        return start
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    reader = tf.train.load_checkpoint(start.checkpoint_prefix)
    if not reader.has_tensor(_OBJECTS_KEY):
        return start
    objects = meta_graph.object_graph_def
    written = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        reader.get_tensor(_OBJECTS_KEY)
    )
    number_there = _same_objects(objects.nodes, written.nodes)
    keys = {}
    for op, number in captured_objects(view, objects):
        for value in (
            written.nodes[number_there[number]].attributes if number in number_there else ()
        ):
            if value.name == _VALUE and reader.has_tensor(value.checkpoint_key):
                keys[_name_of(view, op)] = value.checkpoint_key
    if not {view.nodes[op].op for op in view.ancestors([start.restore_op])} - _OF_A_SAVER:
        start = dataclasses.replace(start, restore_op="", filename_tensor="")
    return dataclasses.replace(
        start,
        random_variables=tuple(name for name in start.random_variables if name not in keys),
        saved_variables=keys,
    )


def _same_objects(saved: Sequence[Message], written: Sequence[Message]) -> dict[int, int]:
    """{number of a model's object: its number in the checkpoint}, by the ways from the roots."""
    number_there = {0: 0} if saved and written else {}
    waiting = list(number_there)
    while waiting:
        number = waiting.pop()
        there = {c.local_name: c.node_id for c in written[number_there[number]].children}
        for child in saved[number].children:
            if child.local_name in there and child.node_id not in number_there:
                number_there[child.node_id] = there[child.local_name]
                waiting.append(child.node_id)
    for number, other in list(number_there.items()):  # those of optimizers, which have no name
        slots = {
            (each.original_variable_node_id, each.slot_name): each.slot_variable_node_id
            for each in written[other].slot_variables
        }
        for slot in saved[number].slot_variables:
            key = number_there.get(slot.original_variable_node_id, -1), slot.slot_name
            if key in slots:
                number_there.setdefault(slot.slot_variable_node_id, slots[key])
    return number_there


def of_graph(
    view: GraphView, meta_graph: MetaGraphDef, path: str, fetches: Sequence[str]
) -> Initialization:
    """How a graph's variables start: by its own ops, and by a checkpoint beside a MetaGraphDef."""
    init_ops = _init_ops(view, fetches)
    saver = meta_graph.saver_def if meta_graph is not None else None
    prefix = os.path.splitext(os.path.abspath(path))[0]  # children work in other folders
    saved = os.path.isfile(prefix + ".index") or os.path.isfile(prefix)
    if saver is None or not saved or saver.restore_op_name not in view.nodes:
        return Initialization(init_ops=init_ops, random_variables=_not_covered(view, init_ops))
    return Initialization(
        init_ops=init_ops,
        restore_op=saver.restore_op_name,
        filename_tensor=saver.filename_tensor_name,
        checkpoint_prefix=prefix,
        random_variables=_not_covered(view, [*init_ops, saver.restore_op_name]),
    )


def _init_ops(view: GraphView, fetches: Sequence[str]) -> tuple[str, ...]:
    """The ops that initialise everything: groups, the widest first, then what is in no group."""
    needed = view.ancestors(fetches)
    fillers = [  # ops that fill the tables and start the iterators that a run uses
        name
        for name, node in view.nodes.items()
        if FILLS.fullmatch(node.op)
        and any(op_of(source) in needed for source in data_inputs(node))
        and _needs_no_input(view, name)
    ]
    groups = {
        name: set(view.ancestors([name]))
        for name, node in view.nodes.items()
        if node.op == "NoOp" and _INIT_NAME.fullmatch(name) and _needs_no_input(view, name)
    }
    missing = dict.fromkeys([*_first_assignments(view), *fillers])
    kept = []
    for group in sorted(groups, key=lambda name: -len(groups[name] & missing.keys())):
        added = groups[group] & missing.keys()
        if added:
            kept.append(group)
            missing = {op: None for op in missing if op not in added}
    return (*kept, *missing)


def _first_assignments(view: GraphView) -> list[str]:
    """For each variable its first Assign whose value depends on no input and no checkpoint."""
    assign_of: dict[str, str] = {}
    for name, node in view.nodes.items():
        if node.op not in _FIRST_ASSIGN or len(node.input) < 2:
            continue
        variable = view.variable_of(node.input[0])
        if not variable or variable in assign_of:
            continue
        cone = view.ancestors([node.input[1]])
        if variable not in cone and _is_free(view, cone):
            assign_of[variable] = name
    return list(assign_of.values())


def _needs_no_input(view: GraphView, name: str) -> bool:
    return _is_free(view, view.ancestors([name]))


def _is_free(view: GraphView, ops: Iterable[str]) -> bool:
    """Whether none of the ops has to be fed or reads a checkpoint."""
    return not {view.nodes[op].op for op in ops} & (op_types.MUST_BE_FED | _RESTORE)


def _not_covered(view: GraphView, ops: Iterable[str]) -> tuple[str, ...]:
    """The names of the variables that have no value after `ops` have run."""
    covered = view.ancestors(ops)
    return tuple(_name_of(view, op) for op in used_variables(view) if op not in covered)


def _name_of(view: GraphView, variable: str) -> str:
    return attribute(view.nodes[variable], "shared_name").s.decode("utf-8", "replace") or variable
