"""Components of sparse and ragged tensors that belong together.

TensorFlow 2 feeds the components of an argument x as x, x_1, x_2; TensorFlow 1 a sparse placeholder
as x/indices, x/values, x/shape. Made up one by one they would contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.names import op_of, parse_input
from graphs.source_model import TensorSpec

Arrays = dict[str, np.ndarray]


def made_consistent(
    graph_def: Any, feeds: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray]
) -> Arrays:
    """The arrays with those of sparse and ragged components replaced by ones that fit together.

    Args:
      graph_def: the flat run graph.
      feeds: what is fed; shapes complete.
      arrays: {tensor: array} made up one by one.
    """
    by_op = {op_of(spec.tensor): spec for spec in feeds}
    result = dict(arrays)
    for name, spec in by_op.items():
        parts = _sparse_parts(name, by_op)
        if parts is not None:
            indices, values, shape = parts
            size = _dense_shape(graph_def, indices, shape, len(result[values.tensor]))
            cells = np.stack(np.unravel_index(np.arange(int(np.prod(size))), size), axis=1)
            count = min(len(result[values.tensor]), len(cells))
            result[indices.tensor] = cells[:count].astype(np.int64)
            result[values.tensor] = result[values.tensor][:count]
            result[shape.tensor] = np.array(size, dtype=np.int64)
            continue
        for splits, inner in _ragged_parts(name, by_op):
            rows = len(result[splits.tensor])
            total = len(result[spec.tensor]) if inner is None else len(result[inner.tensor]) - 1
            edges = np.linspace(0, total, max(rows, 1)).astype(int)
            edges[-1] = total
            edges[0] = 0
            result[splits.tensor] = edges.astype(splits.dtype)
    return result


def _sparse_parts(
    name: str, by_op: Mapping[str, TensorSpec]
) -> tuple[TensorSpec, TensorSpec, TensorSpec] | None:
    """Indices [n, r], values [n] and shape [r] where `name` is the first of them."""
    stem = name.removesuffix("/indices")
    names = (f"{name}_1", f"{name}_2") if stem == name else (f"{stem}/values", f"{stem}/shape")
    if not all(other in by_op for other in names):
        return None
    indices, values, shape = by_op[name], by_op[names[0]], by_op[names[1]]
    fits = (
        indices.dtype == shape.dtype == "int64"
        and len(indices.shape or ()) == 2
        and len(values.shape or ()) == len(shape.shape or ()) == 1
        and (indices.shape or ())[1] == (shape.shape or ())[0]
    )
    return (indices, values, shape) if fits else None


def _ragged_parts(
    name: str, by_op: Mapping[str, TensorSpec]
) -> Iterator[tuple[TensorSpec, TensorSpec | None]]:
    """(row splits, the splits inside of them or None) from the innermost to the outermost.

    x holds the values; x_1, x_2, ... are the splits of the outermost dimension first.
    """
    splits: list[TensorSpec] = []
    while f"{name}_{len(splits) + 1}" in by_op:
        spec = by_op[f"{name}_{len(splits) + 1}"]
        if spec.dtype not in ("int64", "int32") or len(spec.shape or ()) != 1:
            return
        splits.append(spec)
    if not splits or not by_op[name].shape:
        return
    inner: TensorSpec | None = None
    for spec in reversed(splits):
        yield spec, inner
        inner = spec


def _dense_shape(
    graph_def: Any, indices: TensorSpec, shape: TensorSpec, num_values: int
) -> tuple[int, ...]:
    """A size with room for the values; the last one is what a product wants, where there is one."""
    size = [max(num_values, 1)] * (shape.shape or (1,))[0]
    variables = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        if node.op != "SparseTensorDenseMatMul":
            continue
        if parse_input(node.input[0]).op != op_of(indices.tensor):
            continue
        source = variables[parse_input(node.input[3]).op]
        while source.op in ("Identity", "ReadVariableOp"):
            source = variables[parse_input(source.input[0]).op]
        dims = [d.size for d in source.attr["shape"].shape.dim] if "shape" in source.attr else []
        if dims and dims[0] > 0:
            size[-1] = dims[0]
    return tuple(size)
