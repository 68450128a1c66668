"""Minimum cuts by METIS: parts of equal weight that exchange as little as possible.

Source: Karypis and Kumar 1998 (multilevel k-way partitioning).
"""

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pymetis
from scipy import sparse

from graphs.op_graph import FloatArray, IntArray

# METIS sums weights in 32 bits: all vertices together, and all edges together, stay below this.
_TOTAL_WEIGHT = 500_000_000


def minimum_cut(
    edges: sparse.csr_array, weights: FloatArray, num_parts: int, imbalance: float, seed: int
) -> IntArray:
    """i4[V]: part of each vertex, 0 to num_parts - 1 in no order; a part may be empty.

    Args:
      edges: f8[V, V] symmetric, without a diagonal: what cutting each edge costs.
      weights: f8[V], not negative; any unit.
      num_parts: at least 2.
      imbalance: how much heavier than the mean a part may be, as a share of the mean.
      seed: the same seed gives the same parts. METIS seeds the C library's generator, for which
        0 and 1 are the same.
    """
    with silenced_stdout():
        partition = pymetis.part_graph(
            num_parts,
            xadj=edges.indptr.astype(np.int32),
            adjncy=edges.indices.astype(np.int32),
            eweights=_whole_weights(edges.data),
            vweights=_whole_weights(weights),
            options=pymetis.Options(seed=seed % 2**31, ufactor=max(int(imbalance * 1000), 1)),
            recursive=False,
        )
    return np.asarray(partition.vertex_part, dtype=np.int32)


def _whole_weights(weights: FloatArray) -> IntArray:
    """Positive whole numbers in proportion to f8 weights, small enough to be summed in 32 bits."""
    total = max(float(weights.sum()), 1e-30)
    return (np.rint(weights * (_TOTAL_WEIGHT / total)) + 1).astype(np.int32)


STDOUT = 1
_ONE_AT_A_TIME = threading.RLock()
"""Two threads that did this at once would leave standard output closed for good."""


@contextlib.contextmanager
def silenced_stdout() -> Iterator[None]:
    """Drops what C code prints on standard output meanwhile, also what it has not flushed yet.

    METIS complains there of graphs with few vertices, in the middle of a JSON object.
    """
    with _ONE_AT_A_TIME:
        flush = ctypes.CDLL(None).fflush
        try:
            kept = os.dup(STDOUT)
        except OSError:  # there is none
            yield
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        flush(None)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT)
        try:
            yield
        finally:
            flush(None)
            os.dup2(kept, STDOUT)
            os.close(nowhere)
            os.close(kept)
