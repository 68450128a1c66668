"""A model in which a memory plan is written: its graphs, and the SavedModel that it lies in."""

import copy
import dataclasses
from collections.abc import Callable

from graphs.errors import ModelError
from graphs.protos import GraphDef
from graphs.source_model import SourceModel
from rewrite.emit import saved_with
from rewrite.memory.recompute import MemoryPlan, check_plan, has_plan, with_plan, without_plan
from rewrite.model_builder import given_graph
from rewrite.order.order_edges import without_order
from rewrite.pass_base import RewriteError


def planned_model(source: SourceModel, plan: MemoryPlan) -> SourceModel:
    """The model with a plan in its run.

    Args:
      source: the model, its step split or as it came; it has the step itself, and stays as it is.
    """
    return _changed(source, lambda graph_def: with_plan(graph_def, plan))


def cleared_model(source: SourceModel) -> SourceModel:
    """The model without an earlier order in its run, and without an earlier memory plan.

    Raises:
      ModelError: what is marked as a copy is none: without it the model would be another one.
    """
    if has_plan(source.graph_def):
        return _changed(source, _without_copies)
    return dataclasses.replace(source, graph_def=without_order(source.graph_def))


def _without_copies(graph_def: GraphDef) -> GraphDef:
    try:
        check_plan(graph_def, graph_def)
    except RewriteError as error:
        raise ModelError(
            f"reading the model's memory plan: {error}; it is damaged or was changed since tfplace "
            "wrote it; optimize the original model again"
        ) from error
    return without_plan(graph_def)


def _changed(source: SourceModel, change: Callable[[GraphDef], GraphDef]) -> SourceModel:
    graph_def = change(without_order(source.graph_def))
    if source.saved_model_dir:
        meta_graph = copy.deepcopy(source.meta_graph_def)
        meta_graph.graph_def.CopyFrom(change(without_order(meta_graph.graph_def)))
        return dataclasses.replace(
            source,
            graph_def=graph_def,
            meta_graph_def=meta_graph,
            saved_model_dir=saved_with(source, meta_graph),
        )
    if source.origins is not None:
        return dataclasses.replace(source, graph_def=graph_def)
    own = change(without_order(given_graph(source)))
    return dataclasses.replace(source, graph_def=graph_def, split_graph=own)


def check_planned(given: SourceModel, planned: SourceModel) -> int:
    """Returns how many ops a plan adds; RewriteError: the models differ in more than these."""
    if given.saved_model_dir:
        pair = (given.meta_graph_def.graph_def, planned.meta_graph_def.graph_def)
    else:
        pair = (given_graph(given), given_graph(planned))
    return check_plan(without_order(pair[0]), without_order(pair[1]))
