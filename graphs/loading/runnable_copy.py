"""Copies of models for runs of tfplace's own: nothing in them acts outside of the process."""

import os
import shutil
import tempfile
from pathlib import Path

import graphs.late_tensorflow as tf
from graphs.effects import acts_when_loaded, without_effects
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff
from graphs.protos import SavedModelProto


def runnable_copy(directory: str, scratch: str) -> str:
    """A SavedModel that acts in its own process only: itself, or a copy in a new folder there."""
    copy, saved_model = Path(tempfile.mkdtemp(dir=scratch), "model"), sniff(directory).proto
    return str(copy) if write_without_effects(Path(directory), saved_model, copy) else directory


def serialized_without_effects(serialized: bytes) -> bytes:
    """A serialized GraphDef as `without_effects` makes it; itself where nothing acts."""
    graph_def = tf.compat.v1.GraphDef.FromString(serialized)
    cut = without_effects(graph_def)
    return serialized if cut is graph_def else bytes(cut.SerializeToString())


def write_without_effects(directory: Path, saved_model: SavedModelProto, target: Path) -> bool:
    """Cuts out, in place, what acts outside of the process, and writes a copy where that is any."""
    acting = [each for each in saved_model.meta_graphs if acts_when_loaded(each)]
    for meta_graph in acting:
        meta_graph.graph_def.CopyFrom(without_effects(meta_graph.graph_def))
    if acting:
        write_beside(directory, saved_model, target)
    return bool(acting)


def write_beside(directory: Path, saved_model: SavedModelProto, target: Path) -> None:
    """Writes a SavedModel with the files of another one, which are linked."""
    protos = shutil.ignore_patterns(*SAVED_MODEL_FILES)
    shutil.copytree(directory.absolute(), target, ignore=protos, copy_function=os.symlink)
    (target / SAVED_MODEL_FILES[0]).write_bytes(saved_model.SerializeToString())
