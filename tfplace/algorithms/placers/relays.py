"""Finds the first relay of each variable's value: the variable should lie beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graphs.problem import Problem
from tfplace.grouping.copies import is_relay


def ways_to_relays(problem: Problem, has_bytes: Sequence[bool]) -> Iterator[tuple[int, list[int]]]:
    """The first relay of each value that goes from shard to shard, and the way to it.

    Args:
      problem: of a split step.
      has_bytes: [N] whether an op is of a variable's unit.

    Yields:
      The relay, and the ops that it reads from, back to one of the variable's unit.
    """
    graph = problem.graph
    hands_on = is_relay(problem)
    if not hands_on.any():
        return
    source = graph.tensor_producer[graph.use_tensor]
    largest = np.argsort(graph.tensor_bytes[graph.use_tensor], kind="stable")
    read = dict(zip(graph.use_op[largest].tolist(), source[largest].tolist(), strict=True))
    for relay in np.flatnonzero(hands_on).tolist():
        way = [read[relay]]
        if hands_on[way[0]]:
            continue
        while not has_bytes[way[-1]] and way[-1] in read:
            way.append(read[way[-1]])
        if has_bytes[way[-1]]:
            yield relay, way
