"""A written model made loadable here: without other hosts, a large one with less in it."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import graphs.late_tensorflow as tf
from graphs.loading.runnable_copy import write_beside, write_without_effects
from graphs.loading.sniff import sniff
from graphs.names import data_inputs, op_of, parse_input
from graphs.protos import GraphDef, MetaGraphDef, NodeDef, Nodes, SavedModelProto, shape_of
from rewrite.call_graph import names_other_tasks
from rewrite.emit_forms import write_cleared
from rewrite.one_of_alike import LEAST_NODES, one_of_alike
from rewrite.order.order_edges import without_order


@dataclasses.dataclass(frozen=True)
class Loadable:
    """A written model as it is loaded.

    Attributes:
      directory: where it lies, without devices where some mean other tasks than this process.
      signatures: what the written one has.
      is_fewer: whether this one has one op of each kind.
      not_restored: {key: type and shape} of variables that loading leaves out; they are read from
        the files one by one instead, since all together take the more memory.
    """

    directory: str
    signatures: Sequence[str]
    is_fewer: bool = False
    not_restored: "Mapping[str, Kind]" = dataclasses.field(default_factory=dict)


def loadable(directory: Path, tags: Sequence[str], scratch: Path, is_whole: bool) -> Loadable:
    """Makes a written model loadable; a large one with one op of each kind, unless `is_whole`."""
    saved_model = sniff(directory).proto
    # Loading runs what makes a summary writer.
    if write_without_effects(directory, saved_model, scratch / "without_effects"):
        directory = scratch / "without_effects"
    meta_graphs = saved_model.meta_graphs
    wanted = next(each for each in meta_graphs if set(each.meta_info_def.tags) == set(tags))
    signatures = tuple(wanted.signature_def)
    fewer = None if is_whole else with_one_of_alike(wanted)
    if fewer is not None:
        write_beside(directory, fewer.saved_model, scratch / "one_of_alike")
        directory = scratch / "one_of_alike"
    if names_other_tasks(wanted.graph_def):
        write_cleared(directory, scratch / "without_devices")
        directory = scratch / "without_devices"
    not_restored = {} if fewer is None else fewer.not_restored
    return Loadable(str(directory.absolute()), signatures, fewer is not None, not_restored)


@dataclasses.dataclass(frozen=True)
class Fewer:
    """A model with one op of each kind, which restores one variable of each.

    Attributes:
      saved_model: its SavedModel.
      not_restored: {key in the variables' files: type and shape} of the others.
    """

    saved_model: SavedModelProto
    not_restored: "Mapping[str, Kind]"


def with_one_of_alike(meta_graph: MetaGraphDef) -> Fewer | None:
    """A model with one op of each kind in its graph; None for a small one, or one of objects.

    TensorFlow's loader makes every op of a graph anew, one by one in Python: 70 s and 5 GB for
    180,000 of them. What is given loses its other ops, too: a copy of it would be as large again.
    """
    collections = meta_graph.collection_def.values()
    if (
        len(meta_graph.graph_def.node) < LEAST_NODES
        or meta_graph.HasField("object_graph_def")
        or any(not each.HasField("node_list") for each in collections)
    ):
        return None
    saver = meta_graph.saver_def
    run = [saver.save_tensor_name, saver.restore_op_name, saver.filename_tensor_name]
    run += [name for each in collections for name in each.node_list.value]
    named = [
        info.name
        for signature in meta_graph.signature_def.values()
        for infos in (signature.inputs, signature.outputs)
        for info in infos.values()
    ]
    alike = one_of_alike(
        without_order(meta_graph.graph_def),  # whose edges lead to ops that are left out
        {op_of(each) for each in run},
        {op_of(each) for each in named},
    )
    if alike is None:
        return None
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    not_restored: Mapping[str, Kind] = {}
    if saver.restore_op_name:
        not_restored = restore_fewer(alike.graph_def, op_of(saver.restore_op_name))
    meta_graph.graph_def.CopyFrom(alike.graph_def)
    result = SavedModel(saved_model_schema_version=1)
    result.meta_graphs.add().CopyFrom(meta_graph)
    return Fewer(result, not_restored)


Kind = tuple[int, tuple[int, ...]]
"""The type and the shape of a variable."""


@dataclasses.dataclass(frozen=True)
class _Restored:
    """A variable that is restored: the ops that do so, which output it is, and its kind."""

    assign: NodeDef
    identity: NodeDef
    output: int
    kind: Kind


def restore_fewer(graph_def: GraphDef, restore_op: str) -> Mapping[str, Kind]:
    """Takes what restores variables like others out of a graph, in place.

    Args:
      restore_op: what its saver runs, a NoOp that waits for all assignments.

    Returns:
      {key in the variables' files: its kind} of what is no longer restored; nothing where the saver
      isn't as TensorFlow's own is, with one RestoreV2 for variables that are resources.
    """
    nodes = {node.name: node for node in graph_def.node}
    users: dict[str, set[str]] = defaultdict(set)
    for node in graph_def.node:
        for name in node.input:
            users[op_of(name)].add(node.name)
    found = [_restored(nodes, users, name, restore_op) for name in nodes[restore_op].input]
    known = [each for each in found if each is not None]
    sources = {op_of(each.identity.input[0]) for each in known}
    if len(known) < len(found) or len(sources) != 1:
        return {}
    restore = nodes[sources.pop()]
    consts = [nodes[op_of(name)] for name in restore.input[1:]]
    if (
        restore.op != "RestoreV2"
        or users[restore.name] != {each.identity.name for each in known}
        or any(node.op != "Const" or users[node.name] != {restore.name} for node in consts)
    ):
        return {}
    return _taken_out(graph_def, nodes[restore_op], restore, consts, known)


def _restored(
    nodes: Nodes, users: Mapping[str, set[str]], name: str, restore_op: str
) -> _Restored | None:
    """What an assignment restores that only the saver's op waits for; None of any other op."""
    assign = nodes[op_of(name)]
    if assign.op != "AssignVariableOp" or users[assign.name] != {restore_op}:
        return None
    variable, identity = (nodes[op_of(each)] for each in data_inputs(assign))
    is_known = variable.op == "VarHandleOp" and {"shape", "dtype"} <= variable.attr.keys()
    shape = shape_of(variable.attr["shape"].shape) if is_known else None
    if identity.op != "Identity" or users[identity.name] != {assign.name}:
        return None
    if shape is None or min(shape, default=0) < 0:
        return None
    output = parse_input(identity.input[0]).output
    return _Restored(assign, identity, output, (variable.attr["dtype"].type, shape))


def _taken_out(
    graph_def: GraphDef,
    done: NodeDef,
    restore: NodeDef,
    consts: Sequence[NodeDef],
    found: Sequence[_Restored],
) -> Mapping[str, Kind]:
    keys, slices = (tf.make_ndarray(node.attr["value"].tensor) for node in consts)
    first: dict[Kind, _Restored] = {}
    for each in sorted(found, key=lambda each: each.output):
        first.setdefault(each.kind, each)
    kept = list(first.values())
    left = [each for each in found if first[each.kind] is not each]
    if any(slices[each.output] for each in left):
        return {}
    numbers = [each.output for each in kept]
    types = restore.attr["dtypes"].list.type
    types[:] = [types[number] for number in numbers]
    restore.attr.pop("_output_shapes", None)
    for node, values in zip(consts, (keys, slices), strict=True):
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values[numbers]))
        node.attr.pop("_output_shapes", None)
    for number, each in enumerate(kept):
        each.identity.input[0] = f"{restore.name}:{number}"
    gone = {node.name for each in left for node in (each.assign, each.identity)}
    done.input[:] = [name for name in done.input if op_of(name) not in gone]
    staying = type(graph_def)(node=[n for n in graph_def.node if n.name not in gone])
    del graph_def.node[:]
    graph_def.node.extend(staying.node)
    return {keys[each.output].decode(): each.kind for each in left}
