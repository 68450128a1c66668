"""Loads a model from its path and finds the run of it that is to be placed.

Nothing here runs the model. TensorFlow gives the message classes and, where a training step has to
be made, differentiates (graphs/loading/training_step.py).
"""

import dataclasses
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.op_outputs import require_few_outputs
from graphs.errors import ModelError
from graphs.function_library import named_functions, require_bounded
from graphs.graph_view import GraphView
from graphs.loading import initialization, saved_model_file
from graphs.loading.feed_shapes import find_feeds, write_shapes
from graphs.loading.keras_file import export_keras
from graphs.loading.load_options import LoadOptions
from graphs.loading.model_variables import find_variables
from graphs.loading.run_selection import RunSources, SelectedRun, select_run
from graphs.loading.sniff import ModelFile, sniff
from graphs.loading.training_step import with_training_step
from graphs.loading.variable_updates import OptimizerUpdates, require_runnable
from graphs.protos import GraphDef, MetaGraphDef, NodeDef
from graphs.source_model import Initialization, Signature, SourceModel, Variable


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a file holds, whatever its kind; SourceModel explains the fields."""

    path: str
    kind: str
    graph_def: GraphDef
    meta_graph: MetaGraphDef
    saved_model_dir: str
    signatures: Mapping[str, Signature]
    notes: tuple[str, ...] = ()


def load(path: str | os.PathLike[str], options: LoadOptions | None = None) -> SourceModel:
    """Reads a model of any kind and finds one run of it.

    Args:
      path: a GraphDef or MetaGraphDef (binary or text), a SavedModel directory or the file in
        it, or a Keras file.

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
    missing: list[str] = []
    if parts.saved_model_dir:
        missing = saved_model_file.missing_assets(parts.meta_graph, parts.saved_model_dir)
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
        guessed=(*parts.notes, *run.guessed, *feeds.guessed, *missing),
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


def _parts(file: ModelFile, options: LoadOptions) -> _Parts:
    if file.kind.startswith("keras"):
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


_CALLS = op_types.CALLS | op_types.LOOPS | op_types.CONDITIONALS


def require_sound(view: GraphView) -> None:
    """Checks the shapes, the values and the calls of all ops, those in functions too.

    Raises:
      ModelError: a size is impossible, a constant cut off, a called function not there, or there
        are too many calls in calls.
    """
    require_bounded(view.graph_def.node, view.library)
    for nodes in (view.graph_def.node, *(each.node_def for each in view.library.values())):
        require_few_outputs(nodes, view.library)
    for nodes in (*(function.node_def for function in view.library.values()), view.graph_def.node):
        for node in nodes:
            _require_sound(node, view.library)


def _require_sound(node: NodeDef, functions: Collection[str]) -> None:
    shape = node.attr["shape"].shape if "shape" in node.attr else None
    if shape is not None and any(dim.size < -1 for dim in shape.dim):
        sizes = [dim.size for dim in shape.dim]
        raise _damaged(node, f"the shape {sizes}; sizes are 0 or more, -1 where they are unknown")
    if node.op == "Const" and (content := node.attr["value"].tensor.tensor_content):
        tensor = node.attr["value"].tensor
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        try:
            width = tf.as_dtype(tensor.dtype).size
        except TypeError:
            raise _damaged(node, f"a value of the unknown type {tensor.dtype}") from None
        if width and len(content) != math.prod(sizes) * width:
            raise _damaged(
                node,
                f"a value of {len(content)} bytes for the shape {sizes} of "
                f"{math.prod(sizes) * width} bytes",
            )
    if node.op in _CALLS:
        for name in named_functions(node):
            if name and name not in functions:
                raise _damaged(node, f"a call of {name!r}, which is not defined")


def _damaged(node: NodeDef, damage: str) -> ModelError:
    return ModelError(
        f"reading the graph: op {node.name!r} has {damage}; the model is damaged, save it again"
    )


_WHAT_TO_DO = "copy the whole model again"


def require_whole(path: str, initialization: Initialization) -> None:
    """Checks that a model's checkpoint and assets are there and complete.

    The bytes of the variables are counted, not read; wrong values show when the model runs.

    Args:
      initialization: what is restored, and the files that ops read.

    Raises:
      ModelError: a file is missing, too short, or no checkpoint.
    """
    for asset in initialization.asset_feeds.values():
        if not os.path.isfile(asset):
            raise ModelError(
                f"reading model {path!r}: its asset {asset!r} is missing; {_WHAT_TO_DO}"
            )
    if initialization.checkpoint_prefix:
        _require_whole_checkpoint(path, initialization.checkpoint_prefix)


def _require_whole_checkpoint(path: str, prefix: str) -> None:
    """Checks that a checkpoint has all files, and at least the bytes that its index announces."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        wanted = sum(
            # A checksum, lengths, the strings: the fewest bytes of a tensor of strings.
            4 + sum(1 + len(string) for string in np.ravel(reader.get_tensor(name)).tolist())
            if dtypes[name] == tf.string
            else math.prod(shapes[name]) * dtypes[name].size
            for name in shapes
        )
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            f"reading model {path!r}: its variables in {prefix + '.*'!r} can't be read ({said}); "
            f"{_WHAT_TO_DO}"
        ) from None
    shards = sorted(Path(prefix).parent.glob(Path(prefix).name + ".data-*"))
    if not os.path.isfile(prefix + ".index"):
        return  # TensorFlow's first format is one file, which the reader has just read
    num_bytes = sum(shard.stat().st_size for shard in shards)
    # "-of-00002" at their end says how many there are.
    is_short = not shards or len(shards) != int(shards[0].name.rpartition("-of-")[2])
    if is_short or num_bytes < wanted:
        raise ModelError(
            f"reading model {path!r}: its variables take at least {wanted:,} bytes, found "
            f"{num_bytes:,} in {len(shards)} files {prefix + '.data-*'!r}; {_WHAT_TO_DO}"
        )
