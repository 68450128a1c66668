"""Writes a placed model as a SavedModel, whole or not at all.

A SavedModel is copied with everything in it, and only devices change: of ops in the main graphs
and function libraries of all its MetaGraphDefs, and of variables in its object graph. A GraphDef
or MetaGraphDef first becomes a SavedModel without devices, in a child process, and is then
treated the same.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphs.errors import ModelError, OutputError, PlacementError
from graphs.flat_graph import Origin
from graphs.loading.sniff import MAX_PROTO_BYTES, SAVED_MODEL_FILES, sniff
from graphs.source_model import SourceModel
from rewrite.call_graph import copy_of
from rewrite.check_graph import check_same_interface
from rewrite.child_process import ChildError, run_child
from rewrite.clear_devices import ClearDevices
from rewrite.output_dir import atomic_directory
from rewrite.place_graph import known_origins, place_graph
from rewrite.variable_devices import write_object_devices

EXTRA_DIRECTORY = os.path.join("assets.extra", "tfplace")
GRAPH_FILE = "graph.pb"
_FINGERPRINT = "fingerprint.pb"
_BUILD_TIMEOUT_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Emitted:
    """What was written.

    Attributes:
      path: the SavedModel directory.
      num_written: ops asked for that are in at least one MetaGraphDef.
      ignored: ops asked for that are in none: those of a training step made for the search.
      copied_functions: {copy: original} of functions that got several bodies.
      unmatched_variables: VarHandleOps with a device for which the object graph has no variable.
      signature: the signature that was added for the run; empty for a SavedModel.
    """

    path: str
    num_written: int
    ignored: tuple[Origin, ...]
    copied_functions: Mapping[str, str]
    unmatched_variables: tuple[str, ...]
    signature: str


def emit(
    source: SourceModel,
    device_of_origin: Mapping[Origin, str],
    output_dir: str | os.PathLike[str],
    extra_files: Mapping[str, bytes],
    overwrite: bool,
) -> Emitted:
    """Writes `source` with these devices.

    Args:
      source: the model as it was loaded.
      device_of_origin: {op of the run graph: device string}; all other ops get none.
      output_dir: the SavedModel to make.
      extra_files: {name: content} for OUTPUT_DIR/assets.extra/tfplace/.
      overwrite: whether a directory that is there already is replaced.

    Raises:
      OutputError: output_dir exists, can't be written, or holds the model that is read.
      ModelError: the model's variables can't be initialised, or its graph is too big to write.
      PlacementError: not a single op of device_of_origin is in the model.
    """
    _refuse_source(source, Path(output_dir))
    device_of_origin = in_model(source, device_of_origin)
    with atomic_directory(output_dir, overwrite) as made:
        if source.saved_model_dir:
            _copy(source.saved_model_dir, made)
            saved_model, signature = sniff(source.saved_model_dir).proto, ""
        else:
            signature = _build(source, made)
            saved_model = sniff(made).proto
        given = type(saved_model)()
        given.CopyFrom(saved_model)
        placed = _place(saved_model, device_of_origin)
        check_same_interface(given, saved_model)
        _write_saved_model(saved_model, made)
        _require_as_written(saved_model, made)
        _write_extra(made, extra_files, _graph_file(source, device_of_origin))
        renew_fingerprint(made)
    return dataclasses.replace(placed, path=os.fspath(output_dir), signature=signature)


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


def _refuse_source(source: SourceModel, output_dir: Path) -> None:
    target = Path(os.path.realpath(output_dir))
    for path in filter(None, (source.path, source.saved_model_dir)):
        read = Path(os.path.realpath(path))
        if target == read or target in read.parents:
            raise OutputError(
                f"writing {str(output_dir)!r}: it holds the model that is read, {path!r}, which "
                "would be lost; give another --output_dir"
            )


def _copy(saved_model_dir: str, made: Path) -> None:
    """Copies all files of a SavedModel but its protos and an earlier run's own files."""
    skipped = {*SAVED_MODEL_FILES, _FINGERPRINT}

    def ignore(folder: str, names: list[str]) -> set[str]:
        inside = os.path.relpath(folder, saved_model_dir)
        if inside == ".":
            return skipped.intersection(names)
        return {"tfplace"}.intersection(names) if inside == "assets.extra" else set()

    shutil.copytree(saved_model_dir, made, ignore=ignore, dirs_exist_ok=True)
    if (Path(saved_model_dir) / _FINGERPRINT).exists():
        (made / _FINGERPRINT).touch()


def _place(saved_model: Any, device_of_origin: Mapping[Origin, str]) -> Emitted:
    """Places all MetaGraphDefs of a SavedModel in place; says what was found."""
    written: set[Origin] = set()
    copies: dict[str, str] = {}
    unmatched: dict[str, None] = {}
    for meta_graph in saved_model.meta_graphs:
        known = known_origins(meta_graph.graph_def, device_of_origin)
        unknown = set(known.unknown)
        written.update(origin for origin in device_of_origin if origin not in unknown)
        placed = place_graph(meta_graph.graph_def, known.device_of_origin).graph_def
        copies.update(_copied_functions(meta_graph.graph_def, placed))
        meta_graph.graph_def.CopyFrom(placed)
        if meta_graph.HasField("object_graph_def"):
            unmatched.update(dict.fromkeys(write_object_devices(meta_graph)))
    if device_of_origin and not written:
        raise PlacementError(
            f"emitting: none of the {len(device_of_origin)} placed ops is in the model; a "
            "placement must be for this very model, make it again with `tfplace optimize`"
        )
    ignored = tuple(origin for origin in device_of_origin if origin not in written)
    return Emitted("", len(written), ignored, copies, tuple(unmatched), "")


def _copied_functions(given: Any, placed: Any) -> dict[str, str]:
    known = {function.signature.name for function in given.library.function}
    return {
        function.signature.name: copy_of(function)
        for function in placed.library.function
        if function.signature.name not in known
    }


def _write_saved_model(saved_model: Any, made: Path) -> None:
    """Writes saved_model.pb; text and chunked models become binary ones.

    TensorFlow's Python writes no chunked format, and its loader reads none, so a model whose
    graph alone exceeds 2 GiB can't be emitted.
    """
    size = saved_model.ByteSize()
    if size > MAX_PROTO_BYTES:
        raise ModelError(
            f"writing {SAVED_MODEL_FILES[0]}: its graph takes {size} bytes, and a "
            "protocol buffer has at most 2 GiB; keep weights as variables instead of constants"
        )
    content = saved_model.SerializeToString(deterministic=True)
    (made / SAVED_MODEL_FILES[0]).write_bytes(content)


def _require_as_written(saved_model: Any, made: Path) -> None:
    """Reads saved_model.pb back: a file system may fail without saying so."""
    if sniff(made).proto != saved_model:
        raise OutputError(
            f"reading back {str(made / SAVED_MODEL_FILES[0])!r}: it is not what was written; check "
            "the disk, or give another --output_dir"
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


def _graph_file(source: SourceModel, device_of_origin: Mapping[Origin, str]) -> bytes:
    """The rewritten GraphDef, for a model that came as one; else nothing."""
    if source.saved_model_dir:
        return b""
    graph_def = given_graph(source)
    known = known_origins(graph_def, device_of_origin)
    content: bytes = place_graph(graph_def, known.device_of_origin).graph_def.SerializeToString(
        deterministic=True
    )
    return content


def given_graph(source: SourceModel) -> Any:
    """The GraphDef to emit for a model that is no SavedModel.

    As it came, without the shapes that were filled in for the search; with the training step,
    where one had to be made.
    """
    if source.origins is not None:
        return source.graph_def
    if source.meta_graph_def is not None:
        return source.meta_graph_def.graph_def
    return sniff(source.path).proto if os.path.isfile(source.path) else source.graph_def


def _write_extra(made: Path, extra_files: Mapping[str, bytes], graph: bytes) -> None:
    files = {**({GRAPH_FILE: graph} if graph else {}), **extra_files}
    for name, content in files.items():
        path = made / EXTRA_DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _build(source: SourceModel, made: Path) -> str:
    """Makes a SavedModel of a graph, without devices; returns the run's signature."""
    signature = "train_step" if source.mode == "train" else "serving_default"
    with tempfile.TemporaryDirectory(prefix="tfplace_") as scratch:
        graph_file, meta_file = Path(scratch, "graph.pb"), Path(scratch, "meta.pb")
        cleared = ClearDevices()(given_graph(source)).graph_def
        graph_file.write_bytes(cleared.SerializeToString())
        if source.meta_graph_def is not None:
            meta_file.write_bytes(_without_graph(source.meta_graph_def).SerializeToString())
        built = str(Path(scratch, "built"))
        request = {
            "graph_def": str(graph_file),
            "meta_graph_def": str(meta_file) if source.meta_graph_def is not None else "",
            "output_dir": built,
            "signature": signature,
            "feeds": [spec.tensor for spec in source.feeds],
            "fetches": list(source.fetches),
            "variables": [dataclasses.asdict(variable) for variable in source.variables],
            "initialization": dataclasses.asdict(source.initialization),
        }
        try:
            run_child("rewrite.build_saved_model", request, _BUILD_TIMEOUT_SECONDS)
        except ChildError as error:
            raise ModelError(
                f"making a SavedModel of {source.path!r}: {error}; check that the graph's own "
                "init ops run, or hand in a SavedModel"
            ) from error
        shutil.copytree(built, made, dirs_exist_ok=True)
    return signature


def _without_graph(meta_graph: Any) -> Any:
    """A MetaGraphDef without its GraphDef, which goes separately."""
    rest = type(meta_graph)()
    rest.CopyFrom(meta_graph)
    rest.ClearField("graph_def")
    return rest
