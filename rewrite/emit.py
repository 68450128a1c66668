"""Writes a placed model as a SavedModel.

A SavedModel is copied with everything in it, and only devices change: of ops in the main graphs
and function libraries of all its MetaGraphDefs, and of variables in its object graph. A GraphDef
or MetaGraphDef first becomes a SavedModel without devices, in a child process, and is then
treated the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphs.errors import ModelError, OutputError, PlacementError
from graphs.flat_graph import Origin
from graphs.host.child import ChildError, ask_child
from graphs.loading.sniff import MAX_PROTO_BYTES, SAVED_MODEL_FILES, sniff
from graphs.source_model import SourceModel
from rewrite.clear_devices import ClearDevices
from rewrite.place_graph import known_origins, place_graph
from rewrite.signature_key import run_signature
from rewrite.variable_devices import write_object_devices

EXTRA_DIRECTORY = os.path.join("assets.extra", "tfplace")
GRAPH_FILE = "graph.pb"
_FINGERPRINT = "fingerprint.pb"
_BUILD_TIMEOUT_SECONDS = 600.0


def emit(
    source: SourceModel,
    device_of_origin: Mapping[Origin, str],
    made: Path,
    extra_files: Mapping[str, bytes],
) -> tuple[Origin, ...]:
    """Writes `source` with these devices.

    Args:
      source: the model as it was loaded.
      device_of_origin: {op of the run graph: device string}; all other ops get none.
      made: an empty directory, which becomes the SavedModel (see `output_dir`).
      extra_files: {name: content} for assets.extra/tfplace/ in it.

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
        _copy(source.saved_model_dir, made)
        saved_model = sniff(source.saved_model_dir).proto
    else:
        build_saved_model(source, made)
        saved_model = sniff(made).proto
    ignored = _place(saved_model, device_of_origin)
    _write_saved_model(saved_model, made)
    _write_extra(made, extra_files, _graph_file(source, device_of_origin))
    renew_fingerprint(made)
    return ignored


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


def _copy(saved_model_dir: str, made: Path) -> None:
    """Copies all files of a SavedModel but its protos and an earlier run's own files."""
    ignore = leaving_out({*SAVED_MODEL_FILES, _FINGERPRINT}, saved_model_dir)
    shutil.copytree(saved_model_dir, made, ignore=ignore, dirs_exist_ok=True)
    if (Path(saved_model_dir) / _FINGERPRINT).exists():
        (made / _FINGERPRINT).touch()


def leaving_out(
    names: set[str], saved_model_dir: str | os.PathLike[str]
) -> Callable[[str, list[str]], set[str]]:
    """For shutil.copytree: leaves out these files of a SavedModel, and tfplace's own."""
    extra, own = os.path.split(EXTRA_DIRECTORY)

    def ignore(folder: str, inside: list[str]) -> set[str]:
        left_out = {".": names, extra: {own}}
        return left_out.get(os.path.relpath(folder, saved_model_dir), set()).intersection(inside)

    return ignore


def _place(saved_model: Any, device_of_origin: Mapping[Origin, str]) -> tuple[Origin, ...]:
    """Places all MetaGraphDefs of a SavedModel in place; returns the ops that none of them has."""
    written: set[Origin] = set()
    for meta_graph in saved_model.meta_graphs:
        known = known_origins(meta_graph.graph_def, device_of_origin)
        written.update(device_of_origin.keys() - set(known.unknown))
        placed = place_graph(meta_graph.graph_def, known.device_of_origin).graph_def
        meta_graph.graph_def.CopyFrom(placed)
        if meta_graph.HasField("object_graph_def"):
            write_object_devices(meta_graph)
    if device_of_origin and not written:
        raise PlacementError(
            f"emitting: none of the {len(device_of_origin)} placed ops is in the model; a "
            "placement must be for this very model, make it again with `tfplace optimize`"
        )
    return tuple(origin for origin in device_of_origin if origin not in written)


def serialized(message: Any, doing: str, advice: str) -> bytes:
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
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def _write_saved_model(saved_model: Any, made: Path) -> None:
    """Writes saved_model.pb; text and chunked models become binary ones."""
    path = made / SAVED_MODEL_FILES[0]
    advice = "keep weights as variables instead of constants"
    path.write_bytes(serialized(saved_model, f"writing {path.name}", advice))
    if sniff(made).proto != saved_model:  # a file system may fail without saying so
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


def _graph_file(source: SourceModel, device_of_origin: Mapping[Origin, str]) -> bytes:
    """Makes the rewritten GraphDef of a model that came as one; empty for others."""
    if source.saved_model_dir:
        return b""
    graph_def = given_graph(source)
    known = known_origins(graph_def, device_of_origin)
    content: bytes = place_graph(graph_def, known.device_of_origin).graph_def.SerializeToString(
        deterministic=True
    )
    return content


def given_graph(source: SourceModel) -> Any:
    """Finds the GraphDef to emit for a model that is no SavedModel.

    As it came, without the shapes that were filled in for the search; with the training step,
    where one had to be made.
    """
    if source.origins is not None:
        return source.graph_def
    if source.split_graph is not None:
        return source.split_graph
    if source.meta_graph_def is not None:
        return source.meta_graph_def.graph_def
    return sniff(source.path).proto if os.path.isfile(source.path) else source.graph_def


def _write_extra(made: Path, extra_files: Mapping[str, bytes], graph: bytes) -> None:
    files = {**({GRAPH_FILE: graph} if graph else {}), **extra_files}
    for name, content in files.items():
        path = made / EXTRA_DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def build_saved_model(source: SourceModel, made: Path, without_values: bool = False) -> None:
    """Makes a SavedModel of a graph, without devices, in an empty directory.

    Args:
      source: a model that is no SavedModel.
      made: the directory.
      without_values: whether to leave the variables' files out, so that nothing has to run.

    Raises:
      ModelError: TensorFlow can't import it, or its variables can't be initialised.
    """
    meta_graph = b""
    if source.meta_graph_def is not None:
        meta_graph = _without_graph(source.meta_graph_def).SerializeToString()
    request = {
        "graph_def": ClearDevices()(given_graph(source)).graph_def.SerializeToString(),
        "meta_graph_def": meta_graph,
        "output_dir": os.path.abspath(made),
        "signature": run_signature(source.mode),
        "feeds": [spec.tensor for spec in source.feeds],
        "fetches": source.fetches,
        "whole_fetches": source.whole_fetches,
        "variables": source.variables,
        "initialization": source.initialization,
        "without_values": without_values,
    }
    try:
        ask_child("rewrite.build_saved_model", request, _BUILD_TIMEOUT_SECONDS)
    except ChildError as error:
        raise ModelError(
            f"making a SavedModel of {source.path!r}: {error}; check that the graph's own "
            "init ops run, or hand in a SavedModel"
        ) from error


def _without_graph(meta_graph: Any) -> Any:
    """Copies a MetaGraphDef without its graph."""
    result = type(meta_graph)()
    result.CopyFrom(meta_graph)
    result.ClearField("graph_def")
    return result
