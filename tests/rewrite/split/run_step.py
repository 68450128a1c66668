"""Splits a step and runs it beside the unsplit one, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.flat_graph import FlatGraph
from graphs.source_model import TensorSpec
from rewrite.split.build_step import SplitStep, build_step
from rewrite.split.decide import Decisions, decide
from rewrite.split.decompose_norms import decompose_norms

v1 = tf.compat.v1


def split_step(
    flat: FlatGraph, batch: int, num_shards: int, axis_of_feed: Mapping[str, int]
) -> tuple[Decisions, SplitStep]:
    """What was decided, and the split step."""
    flat, properties = decompose_norms(flat, infer(flat), batch, axis_of_feed)
    decisions = decide(flat, properties, batch, axis_of_feed)
    return decisions, build_step(flat, properties, decisions, num_shards)


def flat_graph(graph: tf.Graph, feeds: Mapping[str, Any], fetches: Sequence[str]) -> FlatGraph:
    """The opened run of a graph that is fed arrays."""
    specs = [TensorSpec(name, array.dtype.name, array.shape) for name, array in feeds.items()]
    return flatten(graph.as_graph_def(), specs, fetches)


def run(
    graph_def: Any, fetches: Sequence[str], feeds: Mapping[str, Any], num_steps: int = 1
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """What is fetched in the last step, and the variables after it. All runs begin alike."""
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph) as session:
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
