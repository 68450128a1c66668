"""Tiny benchmark graphs, built once for all tests of this folder."""

import functools

import numpy as np

from graphs.loading.feeds import generate_feeds
from graphs.zoo import ZooGraph, build


@functools.cache
def tiny(name: str) -> ZooGraph:
    return build(name, "tiny")


def feeds_of(graph: ZooGraph) -> dict[str, np.ndarray]:
    """Random inputs of one step, as a user of the written graph gets them."""
    return generate_feeds(graph.graph.as_graph_def(), graph.feeds, [graph.train_op], seed=0)
