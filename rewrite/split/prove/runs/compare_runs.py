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
) -> CompareRequest:
    """What is run; of inputs, axes that may have any size have none in either step.

    Args:
      flat, decisions, step: the unsplit and the split step.
      exact: {constant of the split step: what it is rounded from}.
      feeds: {tensor: array} of both.
      tables: see `table_start`.
    """
    given, split = map(without_effects, (flat.graph_def, step.graph_def))
    for node in (*given.node, *split.node):
        for axis in decisions.open_axes.get(with_index(node.name), ()):
            if axis < len(attribute(node, "shape").shape.dim):
                node.attr["shape"].shape.dim[axis].size = -1
    return CompareRequest(
        StepRun(given.SerializeToString(), tuple(flat.fetches), {}),
        StepRun(split.SerializeToString(), tuple(step.fetches), exact),
        {with_index(name): array for name, array in feeds.items()},
        _NUM_STEPS,
        tables,
    )


def of_few_entries(
    decisions: Decisions, num_shards: int, feeds: Mapping[str, np.ndarray]
) -> tuple[int, Mapping[str, np.ndarray]]:
    """How many entries a batch of two for each shard and one more has, and the feeds of the first.

    All of them where the step takes no batch of any size, or more than the batch grows with it.
    """
    axes, batch, least = decisions.axis_of_feed, decisions.batch, 2 * num_shards + 1
    growing = {(feed, axis) for feed, each in decisions.following.items() for axis in each}
    axis_of = {name: axes[with_index(name)] for name in feeds if with_index(name) in axes}
    is_open = all(axis in decisions.open_axes.get(feed, ()) for feed, axis in axes.items())
    is_cut = all(feeds[name].shape[axis] == batch > least for name, axis in axis_of.items())
    if not (is_open and is_cut and growing <= {*axes.items()}):
        return batch, feeds
    few = {name: feeds[name].take(range(least), axis) for name, axis in axis_of.items()}
    return least, {**feeds, **few}


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
