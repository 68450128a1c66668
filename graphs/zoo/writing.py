"""Writes benchmark graphs to files: GraphDef, MetaGraphDef or a SavedModel of TensorFlow 1."""

import os
import shutil
from pathlib import Path

import graphs.late_tensorflow as tf
from graphs.errors import OutputError
from graphs.host.whole_file import exchange, write_whole
from graphs.names import op_of
from graphs.protos import MetaGraphDef
from graphs.zoo.zoo_graph import ZooGraph, variable_bytes

SIGNATURE = "train_step"


def write(zoo_graph: ZooGraph, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Writes a graph in the format that the path's ending asks for.

    - `.pb`: binary GraphDef; `.pbtxt`: the same as text.
    - `.meta`: MetaGraphDef with the variables' and the `train_op` collections.
    - anything else: a SavedModel directory, its variables initialised, with the signature
      `train_step`: from the feeds to "loss", which is there when train_op has run.

    Raises:
      OutputError: the path exists and `overwrite` is false, the path's kind differs from what
        would replace it, it can't be written, or a SavedModel's variables would not fit this
        machine.
    """
    path = Path(path)
    _require_replaceable(zoo_graph, path, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".pb", ".pbtxt"):
            _write_graph_def(zoo_graph, path)
        elif path.suffix == ".meta":
            content = _meta_graph_def(zoo_graph).SerializeToString()
            write_whole(path, lambda file: file.write(content))
        else:
            _write_saved_model(zoo_graph, path)
    except OSError as error:
        raise OutputError(
            f"writing benchmark graph {zoo_graph.name!r} to {path}: {error}; choose another path"
        ) from error


def _require_replaceable(zoo_graph: ZooGraph, path: Path, overwrite: bool) -> None:
    """Raises OutputError unless `path` is free, or of a kind that may be overwritten."""
    if not os.path.lexists(path):
        return
    doing = f"writing benchmark graph {zoo_graph.name!r} to {path}"
    if not overwrite:
        raise OutputError(f"{doing}: it exists already; choose another path, or say --overwrite")
    is_directory = path.is_dir() and not path.is_symlink()
    if is_directory != (path.suffix not in (".pb", ".pbtxt", ".meta")):
        kind = "a directory" if is_directory else "a file"
        raise OutputError(f"{doing}: {kind} stands there; choose another path")
    if is_directory and any(path.iterdir()) and not (path / "saved_model.pb").exists():
        raise OutputError(
            f"{doing}: the directory there is no SavedModel, so it is not overwritten; "
            "choose another path"
        )


def _write_graph_def(zoo_graph: ZooGraph, path: Path) -> None:
    from google.protobuf import text_format

    graph_def = zoo_graph.graph.as_graph_def()
    if path.suffix == ".pb":
        content = graph_def.SerializeToString()
    else:
        content = text_format.MessageToString(graph_def).encode()
    write_whole(path, lambda file: file.write(content))


def _meta_graph_def(zoo_graph: ZooGraph) -> MetaGraphDef:
    with zoo_graph.graph.as_default():
        return tf.compat.v1.train.export_meta_graph()


def _write_saved_model(zoo_graph: ZooGraph, path: Path) -> None:
    """Saves a copy of the graph, so that the original gets no ops of a saver and a signature."""
    v1 = tf.compat.v1
    _check_memory(zoo_graph, path)
    meta_graph_def = _meta_graph_def(zoo_graph)
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with tf.Graph().as_default() as graph:
            v1.train.import_meta_graph(meta_graph_def)
            train_op = graph.get_operation_by_name(zoo_graph.train_op)
            with tf.control_dependencies([train_op]), tf.name_scope(SIGNATURE):
                loss = tf.identity(graph.get_tensor_by_name(zoo_graph.loss), name="loss")
            inputs = {
                op_of(spec.tensor): graph.get_tensor_by_name(spec.tensor)
                for spec in zoo_graph.feeds
            }
            signature = v1.saved_model.predict_signature_def(inputs, {"loss": loss})
            with v1.Session(graph=graph) as session:
                session.run(zoo_graph.init_op)
                builder = v1.saved_model.Builder(str(partial))
                builder.add_meta_graph_and_variables(
                    session, ["serve"], signature_def_map={SIGNATURE: signature}
                )
                builder.save()
        _replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(made: Path, path: Path) -> None:
    """Moves `made` to `path`; what was at `path` comes to lie at `made`, or is removed."""
    if path.exists():
        if exchange(made, path):
            return
        shutil.rmtree(path)
    made.rename(path)


def _check_memory(zoo_graph: ZooGraph, path: Path) -> None:
    """Raises OutputError where there is no room: initialising holds each variable's value twice."""
    wanted = variable_bytes(zoo_graph)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    path.parent.mkdir(parents=True, exist_ok=True)
    room = min(memory // 2, shutil.disk_usage(path.parent).free)
    if wanted > room:
        raise OutputError(
            f"writing benchmark graph {zoo_graph.name!r} to {path}: a SavedModel holds "
            f"{wanted / 1e9:.1f} GB of initialised variables, this machine has room for "
            f"{room / 1e9:.1f} GB; write a GraphDef (.pb) or MetaGraphDef (.meta), or choose "
            "a smaller size"
        )
