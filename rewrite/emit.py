"""Writes a placed model as a SavedModel.

A SavedModel is copied with everything in it, and only devices change: of ops in the main graphs
and function libraries of all its MetaGraphDefs, and of variables in its object graph. A GraphDef
or MetaGraphDef first becomes a SavedModel without devices (`model_builder`), and is then treated
the same.
"""

import copy
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from graphs.by_key import by_key
from graphs.errors import ModelError, OutputError, PlacementError
from graphs.flat_graph import Origin
from graphs.host.scratch import temporary_directory
from graphs.loading.model_variables import bound_inputs
from graphs.loading.sniff import MAX_PROTO_BYTES, SAVED_MODEL_FILES, sniff
from graphs.protos import GraphDef, Message, MetaGraphDef, NodeDef, SavedModelProto, attribute
from graphs.source_model import SourceModel
from rewrite.call_graph import copy_of
from rewrite.model_builder import BuiltModel, build_saved_model, given_graph
from rewrite.order.order_edges import (
    OrderEdge,
    add_order,
    in_meta_graph,
    known_order,
    without_order,
)
from rewrite.place_graph import known_origins, place_graph

EXTRA_DIRECTORY = os.path.join("assets.extra", "tfplace")
GRAPH_FILE = "graph.pb"
_FINGERPRINT = "fingerprint.pb"


def emit(
    source: SourceModel,
    device_of_origin: Mapping[Origin, str],
    made: Path,
    extra_files: Mapping[str, bytes],
    built: BuiltModel | None = None,
    order: Collection[OrderEdge] = (),
) -> tuple[Origin, ...]:
    """Writes `source` with these devices; what lies on disk is for `prove_structure` to compare.

    Args:
      device_of_origin: {op of the run graph: device string}; all other ops get none.
      made: an empty directory, which becomes the SavedModel (see `output_dir`).
      extra_files: {name: content} for assets.extra/tfplace/ in it.
      built: what a `ModelBuilder` made of a model that is no SavedModel, whose files are moved;
        None where that is still to be done.
      order: control edges between ops of one device, which are written, too.

    Returns:
      The ops of device_of_origin that no MetaGraphDef has: those of a training step that was made
      for the search.

    Raises:
      OutputError: the disk does not hold what was written.
      ModelError: the model's variables can't be initialised, or its graph is too big to write.
      PlacementError: not a single op of device_of_origin is in the model.
    """
    device_of_origin = in_model(source, device_of_origin)
    if source.saved_model_dir:
        # All files but its protos and an earlier run's own files.
        ignore = leaving_out({*SAVED_MODEL_FILES, _FINGERPRINT}, source.saved_model_dir)
        shutil.copytree(source.saved_model_dir, made, ignore=ignore, dirs_exist_ok=True)
        if (Path(source.saved_model_dir) / _FINGERPRINT).exists():
            (made / _FINGERPRINT).touch()
        saved_model = sniff(source.saved_model_dir).proto
    else:
        saved_model = _moved(source, built, made)
    ignored = _place(source, saved_model, device_of_origin, order)
    _write_saved_model(saved_model, made)
    files = dict(extra_files)
    if not source.saved_model_dir:
        placed = saved_model.meta_graphs[0].graph_def
        files[GRAPH_FILE] = _graph_file(given_graph(source), placed, device_of_origin, order)
    for name, content in files.items():
        path = made / EXTRA_DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    renew_fingerprint(made)
    return ignored


def _moved(source: SourceModel, built: BuiltModel | None, made: Path) -> SavedModelProto:
    """Moves the files of a built SavedModel to the directory; returns its proto."""
    made.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        built = built or build_saved_model(source, Path(folder))
        for path in built.directory.iterdir():
            shutil.move(path, made)
        from tensorflow.core.protobuf import saved_model_pb2

        return saved_model_pb2.SavedModel.FromString(built.saved_model)  # our own: no need to sniff


def in_model(source: SourceModel, device_of_origin: Mapping[Origin, str]) -> Mapping[Origin, str]:
    """Names the ops of a run graph as the model that is emitted has them.

    A made training step has opened the model's calls; `source.origins` says where its ops
    stand in a SavedModel. A GraphDef is emitted with its step, so nothing has to be renamed.
    """
    origins = source.origins
    if origins is None or not source.saved_model_dir:
        return device_of_origin
    named: dict[Origin, str] = {}
    for origin, device in device_of_origin.items():
        there = origin if origin.function else origins.get(origin.node, origin)
        if there.node:
            named.setdefault(there, device)
    # In the step a function of the model may only be part of a loop; the model calls it, too.
    called = {function for origin in named for function in origin.calls}
    return {
        origin: device
        for origin, device in named.items()
        if origin.calls or origin.function not in called
    }


def leaving_out(
    names: set[str], saved_model_dir: str | os.PathLike[str]
) -> Callable[[str, list[str]], set[str]]:
    """For shutil.copytree: leaves out these files of a SavedModel, and tfplace's own."""
    extra, own = os.path.split(EXTRA_DIRECTORY)

    def ignore(folder: str, inside: list[str]) -> set[str]:
        left_out = {".": names, extra: {own}}
        return left_out.get(os.path.relpath(folder, saved_model_dir), set()).intersection(inside)

    return ignore


def saved_with(source: SourceModel, meta_graph: MetaGraphDef) -> str:
    """A SavedModel with this MetaGraphDef, in a folder that goes with this process."""
    folder = Path(temporary_directory(), "changed")
    ignore = leaving_out(set(SAVED_MODEL_FILES), source.saved_model_dir)
    shutil.copytree(source.saved_model_dir, folder, ignore=ignore, copy_function=_link)
    saved_model = copy.deepcopy(sniff(source.saved_model_dir).proto)
    tags = set(meta_graph.meta_info_def.tags)
    for each in saved_model.meta_graphs:
        if set(each.meta_info_def.tags) == tags:
            each.CopyFrom(meta_graph)
    advice = "keep weights as variables instead of constants"
    content = serialized(saved_model, "writing the changed model", advice)
    (folder / SAVED_MODEL_FILES[0]).write_bytes(content)
    return str(folder)


def _link(source: str, target: str) -> None:
    """A link to a file that is only read."""
    os.symlink(os.path.abspath(source), target)


def _place(
    source: SourceModel,
    saved_model: SavedModelProto,
    device_of_origin: Mapping[Origin, str],
    order: Collection[OrderEdge],
) -> tuple[Origin, ...]:
    """Places all MetaGraphDefs of a SavedModel in place; returns the ops that none of them has."""
    written: set[Origin] = set()
    for meta_graph in saved_model.meta_graphs:
        known = known_origins(meta_graph.graph_def, device_of_origin)
        written.update(device_of_origin.keys() - set(known.unknown))
        edges = in_meta_graph(source, meta_graph, order)
        given, devices = meta_graph.graph_def, known.device_of_origin
        placed = place_graph(given, devices, edges, is_proven_later=True).graph_def
        meta_graph.graph_def.CopyFrom(placed)
        if meta_graph.HasField("object_graph_def"):
            write_object_devices(meta_graph)
    if device_of_origin and not written:
        raise PlacementError(
            f"emitting: none of the {len(device_of_origin)} placed ops is in the model; a "
            "placement must be for this very model, make it again with `tfplace optimize`"
        )
    return tuple(origin for origin in device_of_origin if origin not in written)


def serialized(message: Message, doing: str, advice: str) -> bytes:
    """Makes bytes of a graph.

    TensorFlow's Python writes no chunked format, and its loader reads none, so a graph that alone
    exceeds 2 GiB can't be written.

    Raises:
      ModelError: it is too big; the message begins with `doing` and ends with `advice`.
    """
    size = message.ByteSize()
    if size > MAX_PROTO_BYTES:
        raise ModelError(
            f"{doing}: its graph takes {size} bytes, and a protocol buffer has at most 2 GiB; "
            f"{advice}"
        )
    return message.SerializeToString(deterministic=True)


def _write_saved_model(saved_model: SavedModelProto, made: Path) -> None:
    """Writes saved_model.pb; text and chunked models become binary ones."""
    path = made / SAVED_MODEL_FILES[0]
    advice = "keep weights as variables instead of constants"
    content = serialized(saved_model, f"writing {path.name}", advice)
    path.write_bytes(content)
    if path.read_bytes() != content:  # a file system may fail without saying so
        raise OutputError(
            f"reading back {str(path)!r}: it is not what was written; check the disk, or give "
            "another --output_dir"
        )


def renew_fingerprint(made: Path) -> None:
    """Computes fingerprint.pb anew where the model had one, else leaves it out, as is allowed."""
    path = made / _FINGERPRINT
    if not path.exists():
        return
    path.unlink()
    try:
        from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting
    except ImportError:  # no public API: another TensorFlow may have it elsewhere
        return
    path.write_bytes(fingerprinting.CreateFingerprintDef(str(made)))


def _graph_file(
    given: GraphDef,
    placed: GraphDef,
    device_of_origin: Mapping[Origin, str],
    order: Collection[OrderEdge],
) -> bytes:
    """Makes the rewritten GraphDef of a model that came as one.

    Where it calls no function, an op has the device that it has in the SavedModel, which was
    checked there: placing it anew takes as long again.
    """
    given = without_order(given)
    if given.library.function:
        known = known_origins(given, device_of_origin)
        result = place_graph(given, known.device_of_origin, known_order(given, order)).graph_def
    else:
        device_of_op = {node.name: node.device for node in placed.node}
        result = copy.deepcopy(given)
        for node in result.node:
            node.device = device_of_op.get(node.name, "")
        add_order(result, order)
    return result.SerializeToString(deterministic=True)


# Devices of the variables that a TensorFlow 2 SavedModel keeps in its object graph.
#
# `tf.saved_model.load` makes variables from the object graph, not from the VarHandleOps of the
# main graph, and puts them where SavedVariable.device says, if asked to. Which object is which op
# is told by the calls of the main graph: the last inputs of a call are, in order, the objects
# that its concrete function is bound to. Names can't tell: many variables may be called "kernel".

_HANDLE_OPS = frozenset({"VarHandleOp", "HashTableV2", "MutableHashTableV2"})


def write_object_devices(meta_graph: MetaGraphDef) -> None:
    """Sets the devices of variables and tables in the object graph, in place, from handle ops.

    Objects that no call of the main graph captures are matched by shared name where it is
    unique; the rest get no device.
    """
    objects = meta_graph.object_graph_def.nodes
    for saved in objects:
        if saved.WhichOneof("kind") == "variable":
            saved.variable.device = ""
    handles = {n.name: n for n in meta_graph.graph_def.node if n.op in _HANDLE_OPS}
    object_of_handle = _by_shared_name(meta_graph, handles) | dict(_bound(meta_graph, handles))
    for name, index in object_of_handle.items():
        kind = objects[index].WhichOneof("kind")
        if kind == "variable":
            objects[index].variable.device = handles[name].device
        elif kind == "resource" and handles[name].device:
            objects[index].resource.device = handles[name].device


def clear_object_devices(meta_graph: MetaGraphDef) -> None:
    """Takes the devices of variables and tables out of the object graph, in place."""
    for saved in meta_graph.object_graph_def.nodes:
        kind = saved.WhichOneof("kind")
        if kind in ("variable", "resource"):
            getattr(saved, kind).device = ""


def _bound(meta_graph: MetaGraphDef, handles: dict[str, NodeDef]) -> Iterator[tuple[str, int]]:
    """(handle op, index of its object) of everything that calls in the main graph capture."""
    objects = meta_graph.object_graph_def
    original = {f.signature.name: copy_of(f) for f in meta_graph.graph_def.library.function}
    for node in meta_graph.graph_def.node:
        function = node.attr["f"].func.name if "f" in node.attr else node.op
        if function not in objects.concrete_functions:
            function = original.get(function, function)
        for tensor, index in bound_inputs(node, function, objects):
            name = tensor.removesuffix(":0")
            if name in handles:
                yield name, index


def _by_shared_name(meta_graph: MetaGraphDef, handles: dict[str, NodeDef]) -> dict[str, int]:
    """{handle op: object} where exactly one of each has the name."""
    objects_named = by_key(
        (saved.variable.name, index)
        for index, saved in enumerate(meta_graph.object_graph_def.nodes)
        if saved.WhichOneof("kind") == "variable"
    )
    handles_named = by_key(
        (attribute(node, "shared_name").s.decode(errors="replace") or name, name)
        for name, node in handles.items()
    )
    return {
        names[0]: objects_named[shared][0]
        for shared, names in handles_named.items()
        if len(names) == 1 and len(objects_named.get(shared, ())) == 1
    }
