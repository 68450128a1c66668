"""Child process of `model_builder`: a graph becomes a SavedModel, without any device.

The graph's variables are initialised here: TensorFlow runs ops of the user's graph and may abort.
"""

import gc
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from graphs.graph_view import reached
from graphs.host.freed_memory import give_back
from graphs.host.parent import Parent
from graphs.names import op_of, with_index
from graphs.protos import GraphDef, MetaGraphDef, NodeDef, Pickled, SessionConfig, SignatureDef
from graphs.run_session import ASSIGN_SCOPE, checkpoint_keys, initialize
from graphs.source_model import Initialization, Variable
from rewrite.model_builder import TAGS
from rewrite.one_of_alike import LEAST_NODES, OneOfAlike, one_of_alike
from rewrite.output_dir import sync_tree
from rewrite.values_in_pieces import pieces_of, write_in_pieces
from rewrite.written_signature import signature_key, whole_signature

v1 = tf.compat.v1
_SCOPE = "tfplace"
_SCOPES = (_SCOPE, "save")
"""Where ops are added to a graph, whose names hang on those that are there."""
_Request = Mapping[str, Pickled]  # of rewrite.model_builder


def main(parent: Parent) -> None:
    """Takes the path of a request, builds, and answers with the signature's name.

    With "without_values" no op of the graph runs, and the variables' files are left out.
    """
    path = Path(parent.request)
    request = pickle.loads(path.read_bytes())
    alike = _built(request)
    gc.collect()
    give_back()
    graph_def = pickle.loads(path.read_bytes())["graph_def"]  # not held beside the values
    made = Path(request["output_dir"])
    _complete(made / "saved_model.pb", alike, graph_def)
    sync_tree(made)  # beside other work: whoever uses it needn't wait
    parent.tell(request["signature"])


def _built(request: dict[str, Pickled]) -> OneOfAlike | None:
    """Builds it, and lets go of everything but the files; says what was left out of its graph."""
    graph = tf.Graph()
    with graph.as_default():
        meta_graph, alike = _import(
            request, graph_pb2.GraphDef.FromString(request.pop("graph_def"))
        )
        give_back()  # the large graph, of which few ops are in TensorFlow's
        variables, initialization = request["variables"], request["initialization"]
        signatures = dict(meta_graph.signature_def) if meta_graph is not None else {}
        if (name := request["signature"]) not in signatures:  # else the run has one of its own
            whole = whole_signature(name, signatures)  # beside a split run the unsplit step
            signatures[name] = _signature(graph, request, request["fetches"])
            if request["whole_fetches"]:
                signatures[whole] = _signature(graph, request, request["whole_fetches"])
        saver = _saver(graph, variables)
        table_ops = _table_initializers(graph, initialization.init_ops)
        with graph.name_scope(_SCOPE):
            main_op = tf.group(*table_ops, name="main_op") if table_ops else None
        parts = {
            "signature_def_map": signatures,
            "assets_collection": v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS) or None,
            "main_op": main_op,
            "saver": saver,
        }
        builder = v1.saved_model.Builder(request["output_dir"])
        tags = list(TAGS)
        if request.get("without_values"):
            builder._has_saved_variables = True  # else it asks for the values first
            builder.add_meta_graph(tags, **parts)
        elif pieces := pieces_of(graph, initialization, variables):
            builder._has_saved_variables = True
            builder.add_meta_graph(tags, **parts)  # before other ops come into the graph
            with v1.Session(config=_session_config()) as session:
                write_in_pieces(session, pieces, Path(request["output_dir"]))
        else:
            with v1.Session(config=_session_config()) as session:
                initialize(session, initialization, variables)
                builder.add_meta_graph_and_variables(session, tags, **parts)
                tensors = (graph.get_tensor_by_name(f"{each.op}:0") for each in variables)
                handles = [tensor for tensor in tensors if tensor.dtype == tf.resource]
                # The values would outlive the session.
                session.run([tf.raw_ops.DestroyResourceOp(resource=h) for h in handles])
                give_back()
        builder.save()
    return alike


def _session_config() -> SessionConfig:
    """No optimizer: what runs once, to give variables their values, takes longer with it."""
    config = v1.ConfigProto(allow_soft_placement=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


def _import(request: _Request, graph_def: GraphDef) -> tuple[MetaGraphDef, OneOfAlike | None]:
    """Imports the graph into the default one; of a large one only what isn't like another op."""
    if not request["meta_graph_def"]:
        alike = None
        if len(graph_def.node) >= LEAST_NODES:
            how: Initialization = request["initialization"]  # gives the variables their values
            run = (*how.init_ops, *how.asset_feeds, how.restore_op, how.filename_tensor)
            named = (*request["feeds"], *request["fetches"], *request["whole_fetches"])
            written = {*map(op_of, named), *(each.op for each in request["variables"])}
            alike = one_of_alike(graph_def, {op_of(n) for n in run if n}, written, _SCOPES)
        v1.import_graph_def(graph_def if alike is None else alike.graph_def, name="")
        return None, alike
    meta_graph = meta_graph_pb2.MetaGraphDef.FromString(request["meta_graph_def"])
    meta_graph.graph_def.CopyFrom(graph_def)
    v1.train.import_meta_graph(meta_graph, clear_devices=True)
    return meta_graph, None


def _signature(graph: tf.Graph, request: _Request, fetches: Sequence[str]) -> SignatureDef:
    """Makes a run a signature: feeds under their ops' names, and fetched tensors.

    An op has no value, so every fetched tensor waits for the fetched ops; where only ops are
    fetched, a constant waits for them.
    """
    inputs = {
        signature_key(tensor): v1.saved_model.build_tensor_info(
            graph.get_tensor_by_name(with_index(tensor))
        )
        for tensor in request["feeds"]
    }
    keys = {mine: signature_key(own) for mine, own in zip(fetches, request["fetches"], strict=True)}
    ops = [graph.get_operation_by_name(fetch) for fetch in fetches if ":" not in fetch]
    tensors = {keys[fetch]: graph.get_tensor_by_name(fetch) for fetch in fetches if ":" in fetch}
    if ops:
        with graph.control_dependencies(ops), graph.name_scope(_SCOPE):
            done = {keys[op.name]: tf.constant(1, tf.int32, name="done") for op in ops[:1]}
            tensors = {
                key: tf.identity(tensor, name="fetched")
                for key, tensor in (tensors or done).items()
            }
    outputs = {key: v1.saved_model.build_tensor_info(tensor) for key, tensor in tensors.items()}
    return v1.saved_model.build_signature_def(
        inputs, outputs, v1.saved_model.signature_constants.PREDICT_METHOD_NAME
    )


def _saver(graph: tf.Graph, variables: Iterable[Variable]) -> tf.compat.v1.train.Saver:
    """Makes a saver of all variables under their names; None where there are none."""
    variables = list(variables)
    keys = checkpoint_keys(variables)
    tensors = {}
    for variable in variables:
        handle = graph.get_tensor_by_name(f"{variable.op}:0")
        if handle.dtype == tf.resource:
            with graph.name_scope(_SCOPE), graph.colocate_with(handle.op):
                handle = tf.raw_ops.ReadVariableOp(
                    resource=handle, dtype=tf.as_dtype(variable.dtype), name="saved"
                )
        tensors[keys[variable.op]] = handle
    with graph.name_scope(_SCOPE):
        return v1.train.Saver(tensors, name="save") if tensors else None


def _table_initializers(graph: tf.Graph, init_ops: Iterable[str]) -> list[tf.Operation]:
    """Finds the ops that fill lookup tables, which must run at each load; variables are saved."""
    initializers = list(v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS))
    starts = [graph.get_operation_by_name(op_of(name)) for name in init_ops]
    for op in reached(starts, lambda op: [*op.control_inputs, *(t.op for t in op.inputs)]):
        if op.type.startswith(("InitializeTable", "LookupTableImport")) and op not in initializers:
            initializers.append(op)
    return initializers


def _complete(path: Path, alike: OneOfAlike | None, serialized: bytes) -> None:
    """Takes the ops that gave the variables their values out of the written model."""
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        nodes: Iterable[NodeDef] = meta_graph.graph_def.node
        nodes = [n for n in nodes if not n.name.startswith(ASSIGN_SCOPE + "/")]
        if alike is not None:
            nodes = alike.all_of(graph_pb2.GraphDef.FromString(serialized), nodes)
        del meta_graph.graph_def.node[:]
        meta_graph.graph_def.node.extend(nodes)
    path.write_bytes(saved_model.SerializeToString(deterministic=True))
