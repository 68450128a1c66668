"""Runs the unsplit and the split step, in float64, and compares all that they compute.

Both are run for two steps from the same values of their variables on the same inputs: what is
fetched in each step and all variables afterwards must be the same, up to the order of additions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.asked_child import ChildError, ask_child
from graphs.names import with_index
from rewrite.split.build_step import SplitStep
from rewrite.split.decide import Decisions
from rewrite.split.op_view import Split
from rewrite.split.states import WHOLE, State

_CHILD = "rewrite.split.compare_runs_child"
_NUM_STEPS = 2
_MOST_BYTES = 2**31 - 2**20  # of a GraphDef that TensorFlow takes
EQUAL = "equal"


@dataclasses.dataclass(frozen=True, eq=False)
class StepRun:
    """A step that is run.

    Attributes:
      graph_def: serialized.
      fetches: tensors "op:i" and ops.
      exact: {constant: the value that its own was rounded from}.
    """

    graph_def: bytes
    fetches: Sequence[str]
    exact: Mapping[str, float]


@dataclasses.dataclass(frozen=True, eq=False)
class CopiedTensor:
    """A tensor that is in parts in the split step.

    Attributes:
      state: how.
      parts: the tensors of the copies.
      is_mean: whether terms are weighted by their part of the batch.
    """

    state: State
    parts: Sequence[str]
    is_mean: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class CompareRequest:
    """What the child is to do.

    Attributes:
      given: the unsplit step.
      split: the split one; its fetches are those of the other, in their order.
      feeds: {tensor "op:i": array} of every step.
      num_steps: how often each is run.
      sizes: entries of the batch in each shard.
      copied: {tensor of the unsplit step: what it is in the split one}, by which the first op that
        computes something else is found; in the order of the graph.
    """

    given: StepRun
    split: StepRun
    feeds: Mapping[str, np.ndarray]
    num_steps: int
    sizes: Sequence[int]
    copied: Mapping[str, CopiedTensor]


@dataclasses.dataclass(frozen=True)
class RunsCompared:
    """What came of comparing the runs.

    Attributes:
      compared: names of the values that agree.
      not_compared: "name: why" of those that can't be compared.
      differing: "name: how" of those that disagree.
      first_differing: the first tensor, in the order of the graph, that does; "" if none.
      max_relative_difference: of what agrees, in the largest |value| of each.
      narrow_ops: {op type: how many} that were not run in float64.
      why_not: why nothing was compared; "" where something was.
      phase: what the child does at present, for the case that it ends there.
    """

    compared: Sequence[str] = ()
    not_compared: Sequence[str] = ()
    differing: Sequence[str] = ()
    first_differing: str = ""
    max_relative_difference: float = 0.0
    narrow_ops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    why_not: str = ""
    phase: str = ""


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
    properties: TensorProperties,
    decisions: Decisions,
    step: SplitStep,
    sizes: Sequence[int],
    exact: Mapping[str, float],
    feeds: Mapping[str, np.ndarray],
) -> CompareRequest:
    """What is run.

    Args:
      flat, properties, decisions, step: the unsplit and the split step.
      sizes: entries of the batch in each shard.
      exact: {constant of the split step: what it is rounded from}.
      feeds: {tensor: array} of both.
    """
    return CompareRequest(
        StepRun(flat.graph_def.SerializeToString(), tuple(flat.fetches), {}),
        StepRun(step.graph_def.SerializeToString(), tuple(step.fetches), exact),
        {with_index(name): array for name, array in feeds.items()},
        _NUM_STEPS,
        sizes,
        copied_tensors(flat, properties, decisions, step),
    )


def copied_tensors(
    flat: FlatGraph,
    properties: TensorProperties,
    decisions: Decisions,
    step: SplitStep,
) -> dict[str, CopiedTensor]:
    """{tensor of numbers: what it is in the split step}, in the order of the graph."""
    there = {node.name: node.op for node in step.graph_def.node}
    copied = {}
    for node in flat.graph_def.node:
        if node.name in flat.unit_of_node:
            continue
        answer = decisions.answer_of_op[node.name]
        for index, dtype in enumerate(properties.dtype_of[node.name]):
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
