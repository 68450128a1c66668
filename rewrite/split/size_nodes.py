"""What tensors of sizes have in common, in the main graph of a split step and in its functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Sharded


def counting(value: np.ndarray, entries: Mapping[int, Sharded]) -> dict[int, Sharded]:
    """The entries that count the batch; those of -1 leave that to TensorFlow."""
    flat = value.reshape(-1)
    return {entry: state for entry, state in entries.items() if flat[entry] != -1}


def with_batch(value: np.ndarray, entries: Mapping[int, Sharded], batch: int) -> np.ndarray:
    """The same sizes for a batch of so many entries."""
    new = np.array(value)
    for entry, state in counting(value, entries).items():
        new.reshape(-1)[entry] = state.size(batch)
    return new


def elements_per_entry(value: np.ndarray, entries: Mapping[int, Sharded]) -> np.ndarray:
    """How much each size grows with each entry of the batch; an array like the sizes."""
    weights = np.zeros_like(value)
    for entry, state in entries.items():
        weights.reshape(-1)[entry] = state.outer * state.inner
    return weights


def share_of(size: int, batch: int, dtype: str) -> np.ndarray:
    """n_m / B, a scalar."""
    import tensorflow as tf

    return np.array(size / batch).astype(tf.as_dtype(dtype).as_numpy_dtype)


def answer_of_shape(writer: NodeWriter, node: Any, name: str, shape: str, number: Any) -> str:
    """Adds what a Shape, ShapeN or Size says of a tensor of this shape, as the op `name`."""
    if node.op != "Size":
        return writer.node("Identity", name, [shape], T=number).name + ":0"
    first = writer.shared_const(np.array(0, np.int32))
    return writer.node("Prod", name, [shape, first], T=number, Tidx=np.int32).name + ":0"
