"""Writes a model that holds both steps, the split one as its run and the unsplit one beside it."""

from __future__ import annotations

import copy
import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.loading.feed_shapes import write_shapes
from graphs.loading.saved_model_file import read_signatures, temporary_directory
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff
from graphs.names import op_of
from graphs.source_model import SourceModel, TensorSpec
from graphs.tensor_protos import shape_proto
from rewrite.emit import leaving_out, serialized
from rewrite.split.build_step import SplitStep
from rewrite.split.other_signatures import redirect_signatures
from rewrite.split.split_graph import split_beside
from rewrite.split.split_signature import write_split_signature
from rewrite.written_signature import has_own, run_name, signature_call


def written(
    source: SourceModel, own: Any, flat: FlatGraph, step: SplitStep, outputs: Mapping[str, str]
) -> SourceModel:
    """The model with both steps.

    Args:
      source: the model as it came.
      own: its main graph.
      flat: the unsplit step.
      step: the split step.
      outputs: {Identity op of both steps: the fetched tensor that it stands for}.
    """
    name = run_name(source)
    call = signature_call(own, source.fetches)
    meta_graph = copy.deepcopy(source.meta_graph_def)
    whole: Sequence[str] = ()
    if call is not None and source.saved_model_dir and name in source.signatures:
        write_split_signature(meta_graph, name, call, step)
        graph_def = meta_graph.graph_def
    else:
        both = split_beside(own, flat, step, outputs, source.fetches)
        graph_def = both.graph_def
        whole = [both.whole_tensor(fetch) for fetch in source.fetches]
        if meta_graph is not None:
            meta_graph.graph_def.CopyFrom(graph_def)
            # Where a signature is made of the run, `build_saved_model` makes that one, too.
            redirect_signatures(meta_graph, name, both.whole_tensor, has_own(source))
    split = dataclasses.replace(
        source,
        graph_def=_with_shapes(graph_def, source.feeds),
        meta_graph_def=meta_graph,
        split_graph=None if source.saved_model_dir else graph_def,
        whole_fetches=tuple(whole),
        signatures=source.signatures if meta_graph is None else read_signatures(meta_graph),
    )
    if not source.saved_model_dir:
        return split
    return dataclasses.replace(split, saved_model_dir=_saved(source, meta_graph))


def _with_shapes(graph_def: Any, feeds: Sequence[TensorSpec]) -> Any:
    """The graph itself where its placeholders say the fed shapes already: it may be large."""
    shape_of = {op_of(spec.tensor): spec.shape for spec in feeds if spec.shape is not None}
    fed = [n for n in graph_def.node if n.name in shape_of and n.op in op_types.PLACEHOLDERS]
    says = (
        "_output_shapes" not in node.attr
        and "shape" in node.attr
        and node.attr["shape"].shape == shape_proto(shape_of[node.name])
        for node in fed
    )
    return graph_def if all(says) else write_shapes(graph_def, feeds)


def _saved(source: SourceModel, meta_graph: Any) -> str:
    """A SavedModel with this MetaGraphDef, in a folder that goes with this process."""
    folder = Path(temporary_directory(), "split")
    ignore = leaving_out(set(SAVED_MODEL_FILES), source.saved_model_dir)
    shutil.copytree(source.saved_model_dir, folder, ignore=ignore, copy_function=_link)
    saved_model = copy.deepcopy(sniff(source.saved_model_dir).proto)
    tags = set(meta_graph.meta_info_def.tags)
    for each in saved_model.meta_graphs:
        if set(each.meta_info_def.tags) == tags:
            each.CopyFrom(meta_graph)
    advice = "keep weights as variables instead of constants"
    content = serialized(saved_model, "writing the split model", advice)
    (folder / SAVED_MODEL_FILES[0]).write_bytes(content)
    return str(folder)


def _link(source: str, target: str) -> None:
    """A link to a file that is only read."""
    os.symlink(os.path.abspath(source), target)
