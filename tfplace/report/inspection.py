"""What is in a model, in numbers: the answer of `tfplace inspect`."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tfplace.preparing.prepare import PreparedModel


@dataclasses.dataclass(frozen=True)
class OpTypeRow:
    """All ops of one type: how many, and their seconds on the device that is fastest for each."""

    op_type: str
    num_ops: int
    seconds: float
    output_bytes: int


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Everything that `inspect` prints.

    Attributes:
      path, kind, mode, step_origin, guessed: what was loaded and how its run was found.
      signatures: names.
      num_ops, num_tensors, num_edges, num_functions: counts of the opened run.
      num_colocation_groups, largest_colocation_group: ops that must lie together.
      devices_asked: {device string: ops}; "" for ops that ask for none.
      trainable_bytes, variable_bytes, constant_bytes: of the run.
      flops: floating point operations of a step, as far as Grappler priced it.
      op_types: rows, the most seconds first.
      units: ops that can't be split, with why.
      opened: conditionals whose branches are placed op by op, with what was done.
      unknown_shapes: tensors whose size is not known.
      unpriced_ops: op types that Grappler could not price.
      without_gpu_kernel: op types that must stay on a CPU.
      cluster: its name; the costs are for it.
    """

    path: str
    kind: str
    mode: str
    step_origin: str
    guessed: Sequence[str]
    signatures: Sequence[str]
    num_ops: int
    num_tensors: int
    num_edges: int
    num_functions: int
    num_colocation_groups: int
    largest_colocation_group: int
    devices_asked: Mapping[str, int]
    trainable_bytes: int
    variable_bytes: int
    constant_bytes: int
    flops: float
    op_types: Sequence[OpTypeRow]
    units: Mapping[str, str]
    opened: Mapping[str, str]
    unknown_shapes: int
    unpriced_ops: Mapping[str, int]
    without_gpu_kernel: Mapping[str, int]
    cluster: str


def inspect(prepared: PreparedModel) -> Inspection:
    """Counts and sums over a prepared model."""
    source, graph = prepared.source, prepared.problem.graph
    group_sizes = np.bincount(graph.colocation_group[graph.colocation_group >= 0], minlength=1)
    is_constant = np.array([op_type == "Const" for op_type in graph.op_types])
    persistent = graph.op_persistent_bytes
    return Inspection(
        path=source.path,
        kind=source.kind,
        mode=source.mode,
        step_origin=source.step_origin,
        guessed=source.guessed,
        signatures=sorted(source.signatures),
        num_ops=graph.num_ops,
        num_tensors=graph.num_tensors,
        num_edges=len(graph.use_op),
        num_functions=len({o.function for o in prepared.flat.origins if o.function}),
        num_colocation_groups=int((group_sizes > 0).sum()),
        largest_colocation_group=int(group_sizes.max()),
        devices_asked=dict(
            collections.Counter(node.device for node in prepared.flat.graph_def.node).most_common()
        ),
        trainable_bytes=source.trainable_bytes,
        variable_bytes=int(persistent[~is_constant].sum()),
        constant_bytes=int(persistent[is_constant].sum()),
        flops=prepared.costs.flops,
        op_types=_op_types(prepared),
        units=prepared.costs.units(prepared.flat),
        opened=prepared.flat.opened,
        unknown_shapes=prepared.num_unknown_shapes,
        unpriced_ops=_counted(np.flatnonzero(~prepared.costs.covered), graph.op_types),
        without_gpu_kernel=_without_gpu_kernel(prepared),
        cluster=prepared.cluster.name,
    )


def _op_types(prepared: PreparedModel) -> list[OpTypeRow]:
    graph = prepared.problem.graph
    fastest = prepared.problem.op_seconds.min(axis=1)
    out_bytes = np.bincount(
        graph.tensor_producer, weights=graph.tensor_bytes, minlength=graph.num_ops
    )
    rows: dict[str, list[float]] = {}
    for op_type, seconds, num_bytes in zip(
        graph.op_types, fastest.tolist(), out_bytes.tolist(), strict=True
    ):
        row = rows.setdefault(op_type, [0, 0.0, 0.0])
        row[0] += 1
        row[1] += seconds
        row[2] += num_bytes
    found_rows = [OpTypeRow(t, int(n), s, int(b)) for t, (n, s, b) in rows.items()]
    return sorted(found_rows, key=lambda row: (-row.seconds, row.op_type))


def _without_gpu_kernel(prepared: PreparedModel) -> dict[str, int]:
    gpus = [d for d, kind in enumerate(prepared.problem.device_types) if kind == "GPU"]
    if not gpus:
        return {}
    nowhere = ~np.isfinite(prepared.costs.op_seconds[:, gpus]).any(axis=1)
    return _counted(np.flatnonzero(nowhere), prepared.problem.graph.op_types)


def _counted(ops: np.ndarray, op_types: Sequence[str]) -> dict[str, int]:
    return dict(collections.Counter(op_types[op] for op in ops.tolist()).most_common())
