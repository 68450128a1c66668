"""Runs the unsplit and the split step, in float64, and compares all that they compute.

Both are run for two steps from the same values of their variables on the same inputs: what is
fetched in each step and all variables afterwards must be the same, up to the order of additions.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from graphs import op_types
from graphs.effects import without_effects
from graphs.flat_graph import FlatGraph
from graphs.function_library import reached_functions
from graphs.graph_view import GraphView
from graphs.host.asked_child import ChildError, ask_child
from graphs.loading.initialization import FILLS
from graphs.names import op_of, with_index
from graphs.source_model import SourceModel
from rewrite.call_graph import without_devices
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import Split
from rewrite.split.prove.runs.messages import (
    NO_TABLES,
    CompareRequest,
    CopiedTensor,
    RunsCompared,
    StepRun,
    TableStart,
)
from rewrite.split.split_step import SplitStep
from rewrite.split.states import WHOLE

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
        if phase == "looking for the first op that differs":
            return RunsCompared(differing=["a value of the step"], first_differing=str(error))
        if phase == "running the split step" and not error.is_timeout:
            return RunsCompared(differing=[f"the split step: only it does not run: {error}"])
        return RunsCompared(why_not=f"{phase or 'starting'}: {error}")


def request_of(
    flat: FlatGraph,
    decisions: Decisions,
    step: SplitStep,
    sizes: Sequence[int],
    exact: Mapping[str, float],
    feeds: Mapping[str, np.ndarray],
    tables: TableStart = NO_TABLES,
) -> CompareRequest:
    """What is run.

    Args:
      flat, decisions, step: the unsplit and the split step.
      sizes: entries of the batch in each shard.
      exact: {constant of the split step: what it is rounded from}.
      feeds: {tensor: array} of both.
      tables: see `table_start`.
    """
    return CompareRequest(
        StepRun(without_effects(flat.graph_def).SerializeToString(), tuple(flat.fetches), {}),
        StepRun(without_effects(step.graph_def).SerializeToString(), tuple(step.fetches), exact),
        {with_index(name): array for name, array in feeds.items()},
        _NUM_STEPS,
        sizes,
        copied_tensors(flat, decisions, step),
        tables,
    )


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


def copied_tensors(
    flat: FlatGraph, decisions: Decisions, step: SplitStep
) -> dict[str, CopiedTensor]:
    """{tensor of numbers: what it is in the split step}, in the order of the graph."""
    there = {node.name: node.op for node in step.graph_def.node}
    copied = {}
    for node in flat.graph_def.node:
        if node.name in flat.unit_of_node:
            continue
        answer = decisions.answer_of_op[node.name]
        for index, dtype in enumerate(decisions.properties.dtype_of[node.name]):
            if "float" not in dtype and "int" not in dtype and dtype != "bool":
                continue
            tensor = f"{node.name}:{index}"
            if isinstance(answer, Split):
                copies = step.copies.get(node.name, ())
                if copies and all(name in there for name in copies):
                    parts = [f"{name}:{index}" for name in copies]
                    copied[tensor] = CopiedTensor(answer.outputs[index], parts, answer.is_mean)
            elif there.get(node.name) == node.op:
                copied[tensor] = CopiedTensor(WHOLE, [tensor])
    return copied
