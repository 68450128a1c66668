"""Writes what goes beside a placed model: its GraphDef, and a copy without any device."""

import copy
import os
import shutil
from pathlib import Path

from graphs.function_library import bodies, rename_references
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff
from graphs.protos import GraphDef, Message, MetaGraphDef
from graphs.source_model import SourceModel
from rewrite.call_graph import copy_of
from rewrite.emit import (
    EXTRA_DIRECTORY,
    GRAPH_FILE,
    clear_object_devices,
    leaving_out,
    renew_fingerprint,
    serialized,
)
from rewrite.place_graph import place_graph

SAVED_MODEL, GRAPH_DEF, CLEARED, PYTHON = FORMS = ("saved_model", "graph_def", "cleared", "python")
CLEARED_DIRECTORY = "cleared"
CLEARED_GRAPH_FILE = "cleared.pb"


def tags_of(source: SourceModel) -> frozenset[str]:
    """Tags of the MetaGraphDef that the model's run is in; none for a GraphDef."""
    if source.meta_graph_def is None:
        return frozenset()
    return frozenset(source.meta_graph_def.meta_info_def.tags)


def write_forms(made: Path, tags: frozenset[str], forms: frozenset[str]) -> None:
    """Writes the forms of a model that `emit` has just written.

    Args:
      tags: of the MetaGraphDef that was placed.
      forms: of FORMS. "graph_def": assets.extra/tfplace/graph.pb, the placed main graph with its
        functions. "cleared": assets.extra/tfplace/cleared/, the same SavedModel without a single
        device string, its variables' files shared with the placed one by hard links; and
        cleared.pb, the same of graph.pb, where that is there. "python" is an extra file of `emit`.

        Without "saved_model" only assets.extra is left.

    Raises:
      ModelError: a graph is too big to be written by itself.
    """
    extra = made / EXTRA_DIRECTORY
    extra.mkdir(parents=True, exist_ok=True)
    if GRAPH_DEF in forms and not (extra / GRAPH_FILE).exists():
        (extra / GRAPH_FILE).write_bytes(_content(_meta_graph(made, tags).graph_def))
    if CLEARED in forms:
        write_cleared(made, extra / CLEARED_DIRECTORY)
        if (extra / GRAPH_FILE).exists():
            placed = sniff(extra / GRAPH_FILE).proto
            (extra / CLEARED_GRAPH_FILE).write_bytes(_content(cleared(placed)))
    if SAVED_MODEL not in forms:
        _leave_only_extra(made)


def _leave_only_extra(made: Path) -> None:
    """Removes the SavedModel, where only other forms were asked for."""
    kept = Path(EXTRA_DIRECTORY).parts[0]
    for entry in list(made.iterdir()):
        if entry.name == kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def cleared(graph_def: GraphDef) -> GraphDef:
    """A GraphDef without devices and without the copies of functions that a placement needed."""
    result = copy.deepcopy(place_graph(graph_def, {}).graph_def)
    names = {function.signature.name for function in result.library.function}
    original_of = {
        function.signature.name: original
        for function in result.library.function
        if (original := copy_of(function)) != function.signature.name and original in names
    }
    for _, nodes in bodies(result):
        for node in nodes:
            rename_references(node, original_of)
    kept = [f for f in result.library.function if f.signature.name not in original_of]
    del result.library.function[:]
    result.library.function.extend(kept)
    return result


def _meta_graph(made: Path, tags: frozenset[str]) -> MetaGraphDef:
    """Finds the MetaGraphDef with these tags; the first where a model came without tags."""
    meta_graphs = sniff(made).proto.meta_graphs
    return next((m for m in meta_graphs if frozenset(m.meta_info_def.tags) == tags), meta_graphs[0])


def write_cleared(made: Path, target: Path) -> None:
    """Writes a copy of a SavedModel without any device; its files are links where they can be."""
    ignore = leaving_out(set(SAVED_MODEL_FILES), made)
    # The fingerprint is written anew, so it must not be a link to the placed model's.
    shutil.copytree(made, target, ignore=ignore, copy_function=_link, symlinks=True)
    saved_model = sniff(made).proto
    for meta_graph in saved_model.meta_graphs:
        meta_graph.graph_def.CopyFrom(cleared(meta_graph.graph_def))
        clear_object_devices(meta_graph)
    (target / SAVED_MODEL_FILES[0]).write_bytes(_content(saved_model))
    renew_fingerprint(target)


def _link(source: str, target: str) -> None:
    """A hard link, or a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _content(message: Message) -> bytes:
    advice = "leave graph_def and cleared out of --emit"
    return serialized(message, "writing a graph by itself", advice)
