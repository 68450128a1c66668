"""Child process of `BegunNorms`: runs batch normalisations fused and apart, and compares."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.host.parent import Parent
from rewrite.split.norm_cases import NormCase
from rewrite.split.prove_norms import NormsAnswer, NormsRequest
from rewrite.split.prove_ops_child import difference

v1 = tf.compat.v1
_TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2}
_TOLERANCE = 1e-3
"""Both add up millions of float32 numbers, in another order."""
_MESSAGE_LENGTH = 200


def main(argv: Sequence[str]) -> None:
    """Receives a NormsRequest; sends NormsAnswer before each case and at the end."""
    parent, answer = Parent(argv), NormsAnswer()
    request: NormsRequest = parent.request
    parent.end_above(request.memory_bytes, lambda why: dataclasses.replace(answer, ended=why))
    for case in request.cases:
        parent.tell(answer)
        answer = with_case(answer, case)
    parent.tell(answer)


def with_case(answer: NormsAnswer, case: NormCase) -> NormsAnswer:
    """The answer with what came of one more case."""
    proven, differing, not_proven = answer.proven, answer.differing, answer.not_proven
    feeds = _made_up(case)
    try:
        fused = _run(case.fused, [old for old, _ in case.outputs], feeds)
    except Exception as error:  # a kernel that is not there
        said = " ".join(str(error).split())[:_MESSAGE_LENGTH]
        return NormsAnswer(proven, differing, [*not_proven, f"{case.name}: {said}"])
    how = _difference(case, fused, feeds)
    if how:
        return NormsAnswer(proven, [*differing, f"{case.name}: {how}"], not_proven)
    return NormsAnswer([*proven, case.name], differing, not_proven)


def _difference(
    case: NormCase, fused: Sequence[np.ndarray], feeds: Mapping[str, np.ndarray]
) -> str:
    """How a normalisation that was taken apart differs; "" where it doesn't."""
    try:
        apart = _run(case.apart, [new for _, new in case.outputs], feeds)
    except Exception as error:  # whatever TensorFlow raises
        return f"only apart it fails: {' '.join(str(error).split())[:_MESSAGE_LENGTH]}"
    dtypes = {dtype for _, dtype in case.feeds.values()}
    tolerance = max(_TOLERANCES.get(dtype, _TOLERANCE) for dtype in dtypes)
    for (old, _), one, other in zip(case.outputs, fused, apart, strict=True):
        how = difference(one, other, tolerance, [])
        if how:
            return f"apart, {old!r} is another one: {how}"
    return ""


def _run(
    graph_def: bytes, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        v1.import_graph_def(v1.GraphDef.FromString(graph_def), name="")
        there = {op.name for op in graph.get_operations()}
        fed = {f"{name}:0": array for name, array in feeds.items() if name in there}
        return [np.asarray(value) for value in session.run(list(fetches), fed)]


def _made_up(case: NormCase) -> dict[str, np.ndarray]:
    """Images around a mean that is not 0; what there is one of for each channel is positive."""
    rng = np.random.default_rng(7)
    feeds = {}
    for name, (shape, dtype) in case.feeds.items():
        is_image = len(shape) > 1
        value = rng.standard_normal(shape) + 0.5 if is_image else rng.uniform(0.2, 0.9, shape)
        feeds[name] = value.astype(tf.as_dtype(dtype).as_numpy_dtype)
    return feeds


if __name__ == "__main__":
    main(sys.argv[1:])
