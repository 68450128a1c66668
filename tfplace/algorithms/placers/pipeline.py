"""Pipelines of a split step: layers on devices one after another, each with all of its shards."""

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.data_parallel import in_a_ring
from tfplace.algorithms.placers.legal import legal
from tfplace.grouping.copies import shard_of_op, tied_copies
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import fastest_seconds


def pipeline(problem: Problem, seed: int = 0) -> IntArray:
    """i4[N]: the layers in the order of their forward ops, cut into a stage for each device.

    A layer has a variable, what reads it, its gradient and its update, for all shards. Stages take
    as long as each other on their own devices: faster ones get more. A stage has a quick link to
    the next (data_parallel.py).

    Args:
      problem: of a split step.
      seed: of the layers.
    """
    # All copies of an op lie in the layer of the first of them.
    tie = tied_copies(problem).group_of_op
    layer = layer_groups(problem, seed).group_of_op[np.unique(tie, return_index=True)[1][tie]]
    seconds = fastest_seconds(problem, problem.allowed())
    num_layers = int(layer.max()) + 1
    first = np.full(num_layers, problem.num_ops, dtype=np.int64)
    computes = (seconds > 0.0) & (shard_of_op(problem) >= 0)
    np.minimum.at(first, layer[computes], np.flatnonzero(computes))
    work = np.bincount(layer, weights=seconds, minlength=num_layers)
    order = np.argsort(first, kind="stable")
    middle = np.cumsum(work[order]) - work[order] / 2.0
    devices = np.array(in_a_ring(problem), dtype=np.int32)
    ends = np.cumsum(_speeds(problem, devices)) * work.sum()
    stage = np.empty(num_layers, dtype=np.int64)
    stage[order] = np.minimum(np.searchsorted(ends, middle), len(devices) - 1)
    return legal(problem, devices[stage[layer]].astype(np.int32))


def pipelines(problem: Problem, seed: int = 0) -> IntArray:
    """i4[1, N]: the same, as the starts of a search are."""
    return pipeline(problem, seed)[None]


def _speeds(problem: Problem, devices: IntArray) -> np.ndarray:
    """f8[D]: shares of the work that devices do in equal times."""
    anywhere = np.isfinite(problem.op_seconds[:, devices]).all(axis=1)
    seconds = problem.op_seconds[anywhere][:, devices].sum(axis=0)
    speeds: np.ndarray = 1.0 / np.maximum(seconds, 1e-12)
    return speeds / speeds.sum()
