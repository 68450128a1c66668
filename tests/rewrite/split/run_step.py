"""Splits a step and runs it beside the unsplit one, in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.building.shapes import infer_known
from graphs.flat_graph import FlatGraph
from graphs.source_model import SourceModel, TensorSpec
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.split_model import SplitModel, StepToSplit
from rewrite.split.split_step import SplitStep

v1 = tf.compat.v1


def split_step(
    flat: FlatGraph, batch: int, num_shards: int, axis_of_feed: Mapping[str, int]
) -> tuple[Decisions, SplitStep]:
    """What was decided, and the split step."""
    flat, properties = decompose_norms(flat, infer_known(flat), batch, axis_of_feed)
    decisions = decide(flat, properties, batch, axis_of_feed)
    return decisions, build_step(flat, decisions, num_shards)


def split_open_step(
    flat: FlatGraph, batch: int, num_shards: int, axis_of_feed: Mapping[str, int]
) -> tuple[Decisions, SplitStep]:
    """As `split_step`, for a batch of any size; both graphs then take one.

    Args:
      flat: the step, traced for a batch of any size.
      batch: the size to decide with.
      num_shards: how many shards.
      axis_of_feed: {fed tensor "op:0": its axis of the batch, the first}.
    """
    properties = infer_known(flat)
    open_axes = {tensor: [axis] for tensor, axis in axis_of_feed.items()}
    decisions = decide_open(flat, properties, batch, axis_of_feed, open_axes)
    assert decisions is not None
    split = build_step(flat, decisions, num_shards)
    for graph_def in (flat.graph_def, split.graph_def):
        for node in graph_def.node:
            if node.op == "Placeholder" and f"{node.name}:0" in axis_of_feed:
                node.attr["shape"].shape.dim[axis_of_feed[f"{node.name}:0"]].size = -1
    return decisions, split


def split_model(
    source: SourceModel, num_shards: int, batch_axes: Mapping[str, int] | None = None
) -> SplitModel:
    """Splits the run of a model once."""
    return StepToSplit(source).split(num_shards, batch_axes)


def flat_graph(graph: tf.Graph, feeds: Mapping[str, Any], fetches: Sequence[str]) -> FlatGraph:
    """The opened run of a graph that is fed arrays."""
    specs = [TensorSpec(name, array.dtype.name, array.shape) for name, array in feeds.items()]
    return flatten(graph.as_graph_def(), specs, fetches)


def random_feeds(flat: FlatGraph) -> dict[str, np.ndarray]:
    """{fed tensor "op:0": array}, the same in each run; integers are 0 and 1."""
    rng = np.random.default_rng(3)
    return {
        f"{spec.tensor.partition(':')[0]}:0": (
            rng.integers(0, 2, spec.shape) if "int" in spec.dtype else rng.normal(size=spec.shape)
        ).astype(spec.dtype)
        for spec in flat.feeds
    }


def as_written() -> tf.compat.v1.ConfigProto:
    """A session's, in which graphs run as they are: rewriting one takes longer than its runs."""
    config = v1.ConfigProto()
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def run_each(
    graph_def: Any, fetches: Sequence[str], arrays: Iterable[Mapping[str, Any]]
) -> list[list[Any]]:
    """What a graph without variables gives for each of what it is fed."""
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=as_written()) as session:
            return [session.run(list(fetches), dict(feeds)) for feeds in arrays]


def run(
    graph_def: Any, fetches: Sequence[str], feeds: Mapping[str, Any], num_steps: int = 1
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """What is fetched in the last step, and the variables after it. All runs begin alike."""
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=as_written()) as session:
            rng, reads = np.random.default_rng(0), {}
            for node in graph_def.node:
                if node.op != "VarHandleOp":
                    continue
                handle = graph.get_tensor_by_name(f"{node.name}:0")
                dtype = tf.as_dtype(node.attr["dtype"].type)
                shape = [dim.size for dim in node.attr["shape"].shape.dim]
                value = np.abs(rng.normal(size=shape) * 0.1).astype(dtype.as_numpy_dtype)
                assign = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value))
                session.run(assign)
                reads[node.name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            answers = [session.run(list(fetches), dict(feeds)) for _ in range(num_steps)]
            return answers[-1], session.run(reads)


def assert_same_steps(
    whole: FlatGraph,
    split: FlatGraph | SplitStep,
    feeds: Mapping[str, Any],
    variables_rtol: float,
    variables_atol: float,
) -> None:
    """What is fetched in the second of two steps, and the variables after it, are the same."""
    outputs, after = run(whole.graph_def, whole.fetches, feeds, num_steps=2)
    split_outputs, split_after = run(split.graph_def, split.fetches, feeds, num_steps=2)
    for one, other in zip(outputs, split_outputs, strict=True):
        if one is not None:
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
    assert set(after) == set(split_after)
    for name, value in after.items():
        np.testing.assert_allclose(
            split_after[name], value, rtol=variables_rtol, atol=variables_atol, err_msg=name
        )
