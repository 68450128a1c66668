"""Makes the components of a sparse or ragged input fit together.

Such an input is fed as several tensors. TensorFlow 2 calls those of an argument x: x, x_1, x_2.
TensorFlow 1 calls those of a sparse placeholder x: x/indices, x/values, x/shape. Arrays that are
made up for each of them by itself would contradict each other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.names import op_of
from graphs.protos import GraphDef
from graphs.source_model import TensorSpec

Arrays = dict[str, np.ndarray]


def made_consistent(
    graph_def: GraphDef,
    properties: TensorProperties,
    feeds: Sequence[TensorSpec],
    arrays: Mapping[str, np.ndarray],
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
            size = [max(len(result[values.tensor]), 1)] * (shape.shape or (1,))[0]
            if columns := _wanted_columns(graph_def, properties, indices):
                size[-1] = columns
            count = min(len(result[values.tensor]), math.prod(size))
            cells = np.unravel_index(np.arange(count), tuple(size))
            result[indices.tensor] = np.stack(cells, axis=1).astype(np.int64)
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
    """Indices [n, r], values [n] and shape [r] of a sparse input, where `name` is its indices."""
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
    """The row splits of a ragged input, where `name` is its values, the innermost first.

    x_1, x_2, ... are the splits, the outermost dimension's first.

    Yields:
      Row splits, and the splits that they divide; None where they divide the values.
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


def _wanted_columns(graph_def: GraphDef, properties: TensorProperties, indices: TensorSpec) -> int:
    """The columns that the last product of a sparse matrix wants; 0 where there is none."""
    columns = 0
    for node in graph_def.node:
        if node.op != "SparseTensorDenseMatMul" or op_of(node.input[0]) != op_of(indices.tensor):
            continue
        rows = properties.shape(node.input[3]) or (0,)
        columns = max(rows[0], 0) or columns
    return columns
