"""Loads a model from its path and finds the run of it that is to be placed.

Nothing here runs the model. TensorFlow gives the message classes and, where a training step has to
be made, differentiates (graphs/loading/training_step.py).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from graphs.errors import ModelError
from graphs.graph_view import GraphView
from graphs.loading import initialization, saved_model_file
from graphs.loading.corruption import require_sound
from graphs.loading.feed_shapes import find_feeds, write_shapes
from graphs.loading.load_options import LoadOptions
from graphs.loading.model_variables import find_variables
from graphs.loading.reachable_ops import require_runnable
from graphs.loading.restored_files import require_whole
from graphs.loading.run_selection import RunSources, SelectedRun, select_run
from graphs.loading.sniff import ModelFile, sniff
from graphs.loading.variable_updates import OptimizerUpdates
from graphs.source_model import Initialization, Signature, SourceModel, Variable


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a file holds, whatever its kind; SourceModel explains the fields."""

    path: str
    kind: str
    graph_def: Any
    meta_graph: Any
    saved_model_dir: str
    signatures: Mapping[str, Signature]
    notes: tuple[str, ...] = ()


def load(path: str | os.PathLike[str], options: LoadOptions | None = None) -> SourceModel:
    """Reads a model of any kind and finds one run of it.

    Args:
      path: a GraphDef or MetaGraphDef (binary or text), a SavedModel directory or the file in
        it, or a Keras file.
      options: what the user said about the run.

    Raises:
      ModelError: the file is no model, is damaged, or nothing in it can be run.
      FetchError: a fetch, signature or input that was asked for does not exist.
      FeedError: a shape or batch size that was asked for contradicts the model.
    """
    options = options or LoadOptions()
    parts = _parts(sniff(path), options)
    view = GraphView(parts.graph_def)
    require_sound(view)
    updates = OptimizerUpdates(view)
    variables = find_variables(view, parts.meta_graph, updates)
    sources = RunSources(
        view=view,
        updates=updates,
        signatures=parts.signatures,
        train_ops=saved_model_file.train_ops(parts.meta_graph),
        could_train=bool(parts.saved_model_dir) and any(v.trainable for v in variables),
    )
    run = select_run(sources, options)
    require_runnable(parts.path, view, run.fetches)
    model = _source_model(parts, view, run, variables, options)
    if not run.step_wanted:
        return model
    from graphs.loading.training_step import with_training_step

    return with_training_step(model)


def _source_model(
    parts: _Parts,
    view: GraphView,
    run: SelectedRun,
    variables: tuple[Variable, ...],
    options: LoadOptions,
) -> SourceModel:
    """The model with a run whose inputs have complete shapes."""
    signature = parts.signatures.get(run.signature)
    feeds = find_feeds(view, run.fetches, signature, parts.signatures, options)
    return SourceModel(
        path=parts.path,
        kind=parts.kind,
        graph_def=write_shapes(parts.graph_def, feeds.specs),
        feeds=feeds.specs,
        fetches=run.fetches,
        mode=run.mode,
        step_origin=run.origin,
        signatures=parts.signatures,
        variables=variables,
        initialization=_initialization(parts, view, run),
        saved_model_dir=parts.saved_model_dir,
        meta_graph_def=parts.meta_graph,
        guessed=(*parts.notes, *run.guessed, *feeds.guessed, *_missing_assets(parts)),
    )


def _initialization(parts: _Parts, view: GraphView, run: SelectedRun) -> Initialization:
    """How the variables start; checks that the files for it are there and whole."""
    if parts.saved_model_dir:
        start = initialization.of_saved_model(view, parts.meta_graph, parts.saved_model_dir)
        require_whole(parts.path, start)
        return initialization.with_saved_variables(start, view, parts.meta_graph)
    start = initialization.of_graph(view, parts.meta_graph, parts.path, run.fetches)
    require_whole(parts.path, start)
    return start


def _missing_assets(parts: _Parts) -> list[str]:
    if not parts.saved_model_dir:
        return []
    return saved_model_file.missing_assets(parts.meta_graph, parts.saved_model_dir)


def _parts(file: ModelFile, options: LoadOptions) -> _Parts:
    if file.kind.startswith("keras"):
        from graphs.loading.keras_file import export_keras

        exported = export_keras(file)
        parts = _of_saved_model(sniff(exported.directory), options)
        return dataclasses.replace(parts, path=file.path, kind="keras", notes=exported.notes)
    if file.kind == "saved_model":
        return _of_saved_model(file, options)
    if options.tags:
        raise ModelError(
            f"reading model {file.path!r}: it is a {file.kind}, which has no tags to choose by; "
            "leave --tags out"
        )
    if file.kind == "graph_def":
        return _Parts(file.path, file.kind, file.proto, None, "", {})
    signatures = saved_model_file.read_signatures(file.proto)
    return _Parts(file.path, file.kind, file.proto.graph_def, file.proto, "", signatures)


def _of_saved_model(file: ModelFile, options: LoadOptions) -> _Parts:
    meta_graph = saved_model_file.choose_meta_graph(file.proto, options.tags, file.path)
    return _Parts(
        path=file.path,
        kind=saved_model_file.kind_of(meta_graph),
        graph_def=meta_graph.graph_def,
        meta_graph=meta_graph,
        saved_model_dir=saved_model_file.loadable_directory(file),
        signatures=saved_model_file.read_signatures(meta_graph),
    )
