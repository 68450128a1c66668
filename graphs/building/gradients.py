"""Finds which ops are the gradient of which, by the names that TensorFlow gives them.

tf.gradients puts the gradient of op "a/b" under "gradients/a/b_grad/", tf.GradientTape under
"gradient_tape/a/b/". Inside opened functions both stand behind the call path.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

from graphs.building.colocation import numbered_groups
from graphs.op_graph import IntArray

_SCOPE = re.compile(r"(?:^|(?<=/))(gradients(?:_\d+)?|gradient_tape(?:_\d+)?)/")
_GRAD = "_grad"


def forward_ops(op_names: Sequence[str]) -> IntArray:
    """i4[N]: the forward op of each gradient op; -1 for all others. Names [N] are call paths."""
    index = {name: i for i, name in enumerate(op_names)}
    forward = np.full(len(op_names), -1, dtype=np.int32)
    for i, name in enumerate(op_names):
        scope = _SCOPE.search(name)
        if scope is not None:
            forward[i] = _forward(name[: scope.start()], name[scope.end() :], index)
    return forward


def _forward(outer: str, inner: str, index: Mapping[str, int]) -> int:
    """The forward op of a gradient op "{outer}gradients/{inner}"; -1 where there is none."""
    parts = inner.split("/")
    for length in range(len(parts) - 1, 0, -1):
        named = "/".join(parts[:length]).removesuffix(_GRAD)
        for candidate in (outer + named, named):
            if candidate in index:
                return index[candidate]
    return -1


def tied_gradients(
    op_names: Sequence[str], colocation_group: IntArray, allowed: np.ndarray
) -> IntArray:
    """i4[N]: the colocation groups, with gradient ops joined to their forward ops; -1 for none.

    A gradient op is not joined where no device would be left that has kernels for the whole group.

    Args:
      op_names: [N].
      colocation_group: i4[N]; -1 for ops in none.
      allowed: bool[N, D] where each op may lie, its group considered.
    """
    unit = colocation_group.copy()  # an op that is in no group gets a number of its own
    alone = np.flatnonzero(unit < 0)
    unit[alone] = int(unit.max(initial=-1)) + 1 + np.arange(len(alone))
    may = np.ones((int(unit.max(initial=-1)) + 1, allowed.shape[1]), dtype=bool)
    np.logical_and.at(may, unit, allowed)
    joined = DisjointSet(range(len(may)))
    for op, forward in enumerate(forward_ops(op_names).tolist()):
        if forward < 0:
            continue
        both = joined[int(unit[forward])], joined[int(unit[op])]
        together = may[both[0]] & may[both[1]]
        if together.any() and joined.merge(*both):
            may[joined[both[0]]] = together
    return numbered_groups(np.array([joined[u] for u in unit.tolist()], dtype=np.int64))
