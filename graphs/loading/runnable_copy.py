"""Copies of models for runs of tfplace's own: nothing in them acts outside of the process."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from graphs.effects import acts_when_loaded, without_effects
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff


class RunnableCopies:
    """Makes a copy of each model once, where it needs one; `close` removes them."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._of_directory: dict[str, str] = {}

    def of_directory(self, directory: str) -> str:
        """A SavedModel that acts in its own process only: the same, or a copy of it."""
        if directory not in self._of_directory:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="tfplace_")
            target = Path(self._folder.name, str(len(self._of_directory)))
            self._of_directory[directory] = runnable_copy(directory, target)
        return self._of_directory[directory]

    def close(self) -> None:
        """Removes the copies; further ones may be made."""
        self._of_directory.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def serialized_without_effects(serialized: bytes) -> bytes:
    """A serialized GraphDef as `without_effects` makes it; itself where nothing acts."""
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef.FromString(serialized)
    cut = without_effects(graph_def)
    return serialized if cut is graph_def else bytes(cut.SerializeToString())


def runnable_copy(directory: str | os.PathLike[str], target: Path) -> str:
    """A SavedModel that acts in its own process only: itself, or a copy that is written.

    Args:
      directory: the SavedModel.
      target: where the copy goes; its files are links. It must not exist.
    """
    saved_model = sniff(directory).proto
    if not cut_effects(saved_model):
        return str(directory)
    write_beside(Path(directory), saved_model, target)
    return str(target)


def cut_effects(saved_model: Any) -> bool:
    """Cuts out what acts outside of the process, in place; whether there was anything."""
    acting = [each for each in saved_model.meta_graphs if acts_when_loaded(each)]
    for meta_graph in acting:
        meta_graph.graph_def.CopyFrom(without_effects(meta_graph.graph_def))
    return bool(acting)


def write_beside(directory: Path, saved_model: Any, target: Path) -> None:
    """Writes a SavedModel with the files of another one, which are linked."""
    source = directory.absolute()

    def protos(folder: str, names: list[str]) -> set[str]:
        return set(SAVED_MODEL_FILES).intersection(names) if Path(folder) == source else set()

    shutil.copytree(source, target, ignore=protos, copy_function=os.symlink)
    (target / SAVED_MODEL_FILES[0]).write_bytes(saved_model.SerializeToString())
