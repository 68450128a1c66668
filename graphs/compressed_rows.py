"""Items sorted by their owner as compressed rows: those of owner i are rows[i] .. rows[i + 1]."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray, LongArray


def row_starts(owners: IntArray | LongArray, size: int) -> LongArray:
    """i8[size+1]: where each owner's items begin among items that are sorted by owner.

    Args:
      owners: the owner of each item, 0 .. size-1, in any order.
      size: how many owners there are.
    """
    rows = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=size), out=rows[1:])
    return rows
