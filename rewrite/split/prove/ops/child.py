"""Child process of `prove_ops`: runs ops whole and in parts, or fused and apart, and compares."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.building.op_outputs import attr_of
from graphs.errors import one_line
from graphs.host.parent import Parent
from graphs.protos import GraphDef, NodeDef, Session
from rewrite.agreement import difference
from rewrite.split.decision import NORMS
from rewrite.split.prove.ops.case_graph import CaseGraph
from rewrite.split.prove.ops.case_inputs import CantMakeUp
from rewrite.split.prove.ops.norm_cases import NormCase
from rewrite.split.prove.ops.op_case import CaseOutcome, OpCase
from rewrite.split.prove.parts import together

v1 = tf.compat.v1
_TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2}
_TOLERANCE = 1e-3
"""Both add up millions of float32 numbers, in another order."""
_FIRST_RESERVED = 3
"""The first output of a batch normalisation that only its gradient in training reads."""
_FAILURES = (ValueError, TypeError, tf.errors.OpError)


def norm_outcome(case: NormCase) -> CaseOutcome:
    """What comes of running one."""
    # Images around a mean that is not 0; what there is one of for each channel is positive.
    rng, feeds = np.random.default_rng(7), dict[str, np.ndarray]()
    for name, (shape, dtype) in case.feeds.items():
        is_image = len(shape) > 1
        value = rng.standard_normal(shape) + 0.5 if is_image else rng.uniform(0.2, 0.9, shape)
        feeds[name] = value.astype(tf.as_dtype(dtype).as_numpy_dtype)
    try:
        fused = _run_norm(case.fused, [old for old, _ in case.outputs], feeds)
    except Exception as error:  # a kernel that is not there
        return CaseOutcome(not_proven=one_line(error))
    try:
        apart = _run_norm(case.apart, [new for _, new in case.outputs], feeds)
    except Exception as error:  # whatever TensorFlow raises
        return CaseOutcome(differs=f"only apart it fails: {one_line(error)}")
    dtypes = {dtype for _, dtype in case.feeds.values()}
    tolerance = max(_TOLERANCES.get(dtype, _TOLERANCE) for dtype in dtypes)
    for (old, _), one, other in zip(case.outputs, fused, apart, strict=True):
        how = difference(one, other, tolerance, [])
        if how:
            return CaseOutcome(differs=f"apart, {old!r} is another one: {how}")
    return CaseOutcome()


def _run_norm(
    graph_def: bytes, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        v1.import_graph_def(v1.GraphDef.FromString(graph_def), name="")
        there = {op.name for op in graph.get_operations()}
        fed = {f"{name}:0": array for name, array in feeds.items() if name in there}
        return [np.asarray(value) for value in session.run(list(fetches), fed)]


def main(parent: Parent) -> None:
    """Takes batches of cases; before each and at the end sends what came of those before."""
    done: list[list[CaseOutcome]] = []
    for batch in parent.request:
        parent.tell(list(done))
        done.append(outcomes_of(batch))
    parent.tell(done)


def outcomes_of(batch: Sequence[OpCase | NormCase]) -> list[CaseOutcome]:
    """Runs cases together; where one of them fails, each alone."""
    norms = [case for case in batch if isinstance(case, NormCase)]
    ops = [case for case in batch if isinstance(case, OpCase)]
    return [*map(norm_outcome, norms), *(_outcomes(ops) if ops else ())]


def _outcomes(batch: Sequence[OpCase]) -> list[CaseOutcome]:
    try:
        return _run(batch)
    except _FailedError as failure:
        if len(batch) > 1:
            return [_outcomes([case])[0] for case in batch]
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
            raise _FailedError(CaseOutcome(not_proven=one_line(error))) from error
        try:
            copies = _graph_def(graphs, "copies")
            read = {name.partition(":")[0] for node in copies.node for name in node.input}
            read -= {node.name for node in copies.node}
            v1.import_graph_def(
                copies, {op: tf_graph.get_tensor_by_name(f"{op}:0") for op in read}, name=""
            )
            parts = session.run([graph.parts for graph in graphs], feeds)
        except _FAILURES as error:
            why = f"only its parts fail: {one_line(error)}"
            raise _FailedError(CaseOutcome(differs=why)) from error
    return [compared(*each) for each in zip(graphs, whole, parts, strict=True)]


def _graph_def(graphs: Sequence[CaseGraph], which: str) -> GraphDef:
    graph_def = v1.GraphDef()
    for graph in graphs:
        graph_def.node.extend(getattr(graph, which))
        if graph.case.library is not None:
            graph_def.library.CopyFrom(graph.case.library)
    return graph_def


def _assign(session: Session, graphs: Sequence[CaseGraph]) -> None:
    values = {name: value for graph in graphs for name, value in graph.variables.items()}
    tensors = {name: session.graph.get_tensor_by_name(f"{name}:0") for name in values}
    session.run(
        [
            tf.raw_ops.AssignVariableOp(resource=tensors[name], value=value)
            for name, value in values.items()
        ]
    )


def compared(
    graph: CaseGraph, whole: Sequence[np.ndarray], parts: Sequence[np.ndarray]
) -> CaseOutcome:
    """Whether what the copies made, put together, is what the whole op made."""
    case = graph.case
    for index, state in enumerate(case.outputs):
        if _is_never_written(case.node, index):
            continue
        mine = [np.asarray(shard[index]) for shard in parts]
        try:
            wholes = together(mine, state, case.sizes, case.is_mean)
        except ValueError as error:
            return CaseOutcome(differs=f"output {index}: {error}")
        for other in wholes:
            how = difference(np.asarray(whole[index]), other, graph.tolerance, mine)
            if how:
                return CaseOutcome(differs=f"output {index}: {how}")
    return CaseOutcome(is_exact=not graph.tolerance)


def _is_never_written(node: NodeDef, output: int) -> bool:
    """Whether the kernel leaves an output as the memory was: training keeps something in it."""
    return node.op in NORMS and output >= _FIRST_RESERVED and not attr_of(node, "is_training").b
