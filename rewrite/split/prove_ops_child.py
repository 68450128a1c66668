"""Child process of `prove_ops`: runs ops whole and in parts, and compares."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.host.parent import Parent
from rewrite.split.case_graph import CaseGraph
from rewrite.split.norm_pairs import NORMS
from rewrite.split.numpy_parts import combined, join
from rewrite.split.op_case import OpCase
from rewrite.split.op_inputs import CantMakeUp
from rewrite.split.op_view import attr_of
from rewrite.split.prove_ops_messages import CaseOutcome, OutcomesSoFar, ProveOpsRequest
from rewrite.split.states import Partial, Sharded, State

v1 = tf.compat.v1
_MESSAGE_LENGTH = 200
_CHUNK = 2**22
_FIRST_RESERVED = 3
"""The first output of a batch normalisation that only its gradient in training reads."""
_FAILURES = (ValueError, TypeError, tf.errors.OpError)


def main(argv: Sequence[str]) -> None:
    """Receives a ProveOpsRequest; sends OutcomesSoFar before each batch and at the end."""
    parent = Parent(argv)
    request: ProveOpsRequest = parent.request
    done: list[list[CaseOutcome]] = []
    parent.end_above(request.memory_bytes, lambda why: OutcomesSoFar(done, ended=why))
    for batch in request.batches:
        parent.tell(OutcomesSoFar(done))
        done.append(outcomes_of(batch))
    parent.tell(OutcomesSoFar(done))


def outcomes_of(batch: Sequence[OpCase]) -> list[CaseOutcome]:
    """Runs cases together; where one of them fails, each alone."""
    try:
        return _run(batch)
    except _FailedError as failure:
        if len(batch) > 1:
            return [outcomes_of([case])[0] for case in batch]
        return [failure.outcome]


class _FailedError(Exception):
    def __init__(self, outcome: CaseOutcome):
        super().__init__()
        self.outcome = outcome


def _run(batch: Sequence[OpCase]) -> list[CaseOutcome]:
    """Raises _FailedError where the ops of one of the cases fail."""
    try:
        graphs = [CaseGraph(case, f"case_{number}") for number, case in enumerate(batch)]
    except CantMakeUp as error:
        raise _FailedError(CaseOutcome(not_proven=str(error))) from error
    except ValueError as error:
        raise _FailedError(CaseOutcome(differs=f"it can't be cut so: {error}")) from error
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    feeds = {name: value for graph in graphs for name, value in graph.feeds.items()}
    with tf.Graph().as_default() as tf_graph, v1.Session(graph=tf_graph, config=config) as session:
        try:
            v1.import_graph_def(_graph_def(graphs, "nodes"), name="")
            _assign(session, graphs)
            whole = session.run([graph.whole for graph in graphs], feeds)
        except _FAILURES as error:
            raise _FailedError(CaseOutcome(not_proven=_message(error))) from error
        try:
            copies = _graph_def(graphs, "copies")
            read = {name.partition(":")[0] for node in copies.node for name in node.input}
            read -= {node.name for node in copies.node}
            v1.import_graph_def(
                copies, {op: tf_graph.get_tensor_by_name(f"{op}:0") for op in read}, name=""
            )
            parts = session.run([graph.parts for graph in graphs], feeds)
        except _FAILURES as error:
            why = f"only its parts fail: {_message(error)}"
            raise _FailedError(CaseOutcome(differs=why)) from error
    return [compared(*each) for each in zip(graphs, whole, parts, strict=True)]


def _graph_def(graphs: Sequence[CaseGraph], which: str) -> Any:
    graph_def = v1.GraphDef()
    for graph in graphs:
        graph_def.node.extend(getattr(graph, which))
        if graph.case.library is not None:
            graph_def.library.CopyFrom(graph.case.library)
    return graph_def


def _assign(session: Any, graphs: Sequence[CaseGraph]) -> None:
    values = {name: value for graph in graphs for name, value in graph.variables.items()}
    tensors = {name: session.graph.get_tensor_by_name(f"{name}:0") for name in values}
    session.run(
        [
            tf.raw_ops.AssignVariableOp(resource=tensors[name], value=value)
            for name, value in values.items()
        ]
    )


def compared(graph: CaseGraph, whole: Sequence[Any], parts: Sequence[Any]) -> CaseOutcome:
    """Whether what the copies made, put together, is what the whole op made.

    Args:
      graph: what was run.
      whole: the whole op's outputs.
      parts: for each shard its copy's outputs.
    """
    case = graph.case
    for index, state in enumerate(case.outputs):
        if _is_never_written(case.node, index):
            continue
        mine = [np.asarray(shard[index]) for shard in parts]
        try:
            together = _together(case, state, mine)
        except ValueError as error:
            return CaseOutcome(differs=f"output {index}: {error}")
        for other in together:
            how = difference(np.asarray(whole[index]), other, graph.tolerance, mine)
            if how:
                return CaseOutcome(differs=f"output {index}: {how}")
    return CaseOutcome()


def _is_never_written(node: Any, output: int) -> bool:
    """Whether the kernel leaves an output as the memory was: training keeps something in it."""
    return node.op in NORMS and output >= _FIRST_RESERVED and not attr_of(node, "is_training").b


def _together(case: OpCase, state: State, parts: list[np.ndarray]) -> list[np.ndarray]:
    """What must be equal to the whole output."""
    if isinstance(state, Sharded):
        return [join(parts, state, case.sizes)]
    if isinstance(state, Partial):
        if case.is_mean:
            share = [size / sum(case.sizes) for size in case.sizes]
            parts = [part * each for part, each in zip(parts, share, strict=True)]
        return [combined(parts, state.combine)]
    return parts


def difference(
    whole: np.ndarray, other: np.ndarray, tolerance: float, parts: Sequence[np.ndarray]
) -> str:
    """How two arrays differ; "" where they don't.

    Args:
      whole: as it should be.
      other: what the parts are together.
      tolerance: how far floats may be apart, in the largest value of `whole` or `parts`.
      parts: what rounding errors come from, beside `whole`.
    """
    if whole.shape != other.shape:
        return f"its shape is {other.shape}, wanted {whole.shape}"
    if whole.dtype == object or whole.dtype.kind in "biuSU":
        return "" if np.array_equal(whole, other) else "its values differ"
    scale = max(_largest(array) for array in (whole, *parts))
    most = max(
        (_most_apart(*chunk) for chunk in zip(_chunks(whole), _chunks(other), strict=True)),
        default=0.0,
    )
    if most <= tolerance * scale:
        return ""
    return f"it differs by {most:.3g}, where values are up to {scale:.3g}"


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in float64, not all at once."""
    flat = array.reshape(-1)
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    for begin in range(0, len(flat), _CHUNK):
        yield flat[begin : begin + _CHUNK].astype(kind)


def _largest(array: np.ndarray) -> float:
    """The largest finite |value|."""
    finite = (np.abs(chunk[np.isfinite(chunk)]) for chunk in _chunks(array))
    return max((float(values.max()) for values in finite if values.size), default=0.0)


def _most_apart(one: np.ndarray, two: np.ndarray) -> float:
    """The largest |difference|; the same infinity or NaN has none."""
    apart = ~((one == two) | (np.isnan(one) & np.isnan(two)))
    if not apart.any():
        return 0.0
    most = float(np.max(np.abs(one[apart] - two[apart])))
    return math.inf if math.isnan(most) else most


def _message(error: Exception) -> str:
    return " ".join(str(error).split())[:_MESSAGE_LENGTH]


if __name__ == "__main__":
    main(sys.argv[1:])
