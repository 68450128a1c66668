"""Runs the unsplit and the split step, in float64, and compares all that they compute.

Both are run for two steps from the same values of their variables on the same inputs: what is
fetched in each step and all variables afterwards must be the same, up to the order of additions.
"""

from collections.abc import Mapping

import numpy as np

from graphs import op_types
from graphs.effects import without_effects
from graphs.flat_graph import FlatGraph
from graphs.function_library import reached_functions
from graphs.graph_view import GraphView
from graphs.host.asked_child import ChildError, ask_child
from graphs.loading.initialization import FILLS
from graphs.names import op_of, with_index
from graphs.protos import attribute
from graphs.source_model import SourceModel
from rewrite.call_graph import without_devices
from rewrite.split.decide.decide import Decisions
from rewrite.split.pieces.convert import filled_as_given
from rewrite.split.prove.runs.messages import (
    NO_TABLES,
    CompareRequest,
    RunsCompared,
    StepRun,
    TableStart,
)
from rewrite.split.split_step import SplitStep

_CHILD = "rewrite.split.prove.runs.child"
_NUM_STEPS = 2
_MOST_BYTES = 2**31 - 2**20  # of a GraphDef that TensorFlow takes
EQUAL = "equal"


def compare_runs(
    request: CompareRequest, seconds: float, memory_bytes: float | None
) -> RunsCompared:
    """Runs both steps in a child process, which is ended when it takes too long.

    Args:
      request: see `request_of`.
      seconds, memory_bytes: what the child may take; None for no limit.
    """
    size = max(len(request.given.graph_def), len(request.split.graph_def))
    if size > _MOST_BYTES:
        return RunsCompared(why_not=f"its graph has {size / 2**30:.1f} GiB")
    try:
        return ask_child(_CHILD, request, seconds, memory_bytes)
    except ChildError as error:
        if error.gave_up:
            return RunsCompared(why_not=str(error))
        before = error.last_message
        phase = before.phase if before is not None else ""
        if phase == "running the split step" and not error.is_timeout:
            return RunsCompared(differing=[f"the split step: only it does not run: {error}"])
        return RunsCompared(why_not=f"{phase or 'starting'}: {error}")


def request_of(
    flat: FlatGraph,
    decisions: Decisions,
    step: SplitStep,
    exact: Mapping[str, float],
    feeds: Mapping[str, np.ndarray],
    tables: TableStart = NO_TABLES,
    count: int = 0,
) -> CompareRequest:
    """What is run; of inputs, axes that may have any size have none in either step.

    Args:
      exact: {constant of the split step: what it is rounded from}.
      feeds: {tensor: array} of both.
      tables: see `table_start`.
      count: how many entries of the batch are fed; 0 for all.
    """
    fed = {with_index(name): array for name, array in feeds.items()}
    for feed, axis in decisions.axis_of_feed.items() if count else ():
        fed[feed] = fed[feed].take(range(count), axis)
    made = filled_as_given(step.graph_def) if step.pieces else step.graph_def
    given, split = type(flat.graph_def)(), type(flat.graph_def)()
    for own, graph_def in ((given, flat.graph_def), (split, made)):
        own.CopyFrom(without_effects(graph_def))
        for node in own.node:
            for axis in decisions.open_axes.get(with_index(node.name), ()):
                if axis < len(attribute(node, "shape").shape.dim):
                    node.attr["shape"].shape.dim[axis].size = -1
    return CompareRequest(
        StepRun(given.SerializeToString(), tuple(flat.fetches), {}),
        StepRun(split.SerializeToString(), tuple(step.fetches), exact, step.pieces),
        fed,
        _NUM_STEPS,
        tables,
    )


def few_entries(decisions: Decisions, num_shards: int) -> int:
    """How many entries of the batch whole steps are run with: two for each shard and one more.

    All of them where the step takes no batch of any size, or more than the batch grows with it.
    """
    axes, batch, least = decisions.axis_of_feed, decisions.batch, 2 * num_shards + 1
    growing = {(feed, axis) for feed, each in decisions.following.items() for axis in each}
    shape_of = decisions.properties.shape
    is_cut = bool(axes) and all(
        axis in decisions.open_axes.get(feed, ()) and (shape_of(feed) or ())[axis] == batch > least
        for feed, axis in axes.items()
    )
    return least if is_cut and growing <= {*axes.items()} else batch


def table_start(source: SourceModel) -> TableStart:
    """What fills the tables of a model."""
    view, start = GraphView(source.graph_def), source.initialization
    types = {name: view.nodes[name].op for name in view.ancestors(start.init_ops)}
    ops = [name for name, op in types.items() if op in op_types.CALLS or FILLS.fullmatch(op)]
    needed = view.ancestors(ops)
    graph = type(source.graph_def)(versions=source.graph_def.versions)
    graph.node.extend(view.nodes[name] for name in needed)
    called = reached_functions(graph.node, view.library)
    graph.library.function.extend(view.library[name] for name in called)
    paths = {with_index(t): path for t, path in start.asset_feeds.items() if op_of(t) in needed}
    return TableStart(without_devices(graph).SerializeToString(), ops, paths)
