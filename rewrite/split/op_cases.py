"""The distinct split ops of a step, each of which is proven once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphs import op_types
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input, source_of, with_index
from graphs.tensor_protos import shape_of
from rewrite.split.decide import Decisions
from rewrite.split.op_view import Split
from rewrite.split.states import Sharded, State, shard_sizes

Shape = tuple[int, ...] | None
_COPIES = 4  # what is read and made, whole and in parts
_MOST_WORK = 2e9
_MOST_ELEMENTS = 2**25


@dataclasses.dataclass(frozen=True)
class CaseInput:
    """A data input of a case.

    Attributes:
      shape: of the whole tensor; of the variable where it is a variable's handle.
      dtype: of the tensor or the variable.
      state: what the copies read.
      value: the whole tensor, where no run can change it.
      values_of_shards: what each copy reads instead, where the input holds sizes.
      is_handle: whether it is the handle of a variable.
    """

    shape: Shape
    dtype: str
    state: State
    value: np.ndarray | None = None
    values_of_shards: tuple[np.ndarray, ...] = ()
    is_handle: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """What two inputs that are alike have in common."""
        values = () if self.value is None else (self.value, *self.values_of_shards)
        written = tuple((str(v.dtype), v.shape, v.tobytes()) for v in values)
        return self.shape, self.dtype, self.state, written, self.is_handle


@dataclasses.dataclass(frozen=True)
class OpCase:
    """A split op: what it is whole, and what its copies are.

    Attributes:
      name: the first op of the step that is so.
      count: how many there are.
      node: the op, without inputs and name.
      copy: one of its copies, which are all alike.
      inputs: its data inputs.
      outputs: the state of each output.
      sizes: entries of the batch in each shard.
      is_mean: whether terms are weighted by their part of the batch.
      library: the functions that it calls; None where it calls none.
      num_elements: of all whole inputs and outputs together.
      work: about how many operations it takes.
    """

    name: str
    count: int
    node: Any
    copy: Any
    inputs: tuple[CaseInput, ...]
    outputs: tuple[State, ...]
    sizes: tuple[int, ...]
    is_mean: bool
    library: Any
    num_elements: int
    work: float

    @property
    def is_heavy(self) -> bool:
        """Whether it is run in the step's own types: float64 would take too long."""
        return self.work > _MOST_WORK or self.num_elements > _MOST_ELEMENTS

    @property
    def num_bytes(self) -> int:
        """What it takes to run it whole and in parts."""
        return _COPIES * (4 if self.is_heavy else 8) * self.num_elements


def op_cases(
    flat: FlatGraph, properties: TensorProperties, decisions: Decisions, num_shards: int
) -> list[OpCase]:
    """One case for each distinct split op: type, attributes, shapes, states and known inputs."""
    sizes = shard_sizes(decisions.batch, num_shards)
    first: dict[tuple[Any, ...], OpCase] = {}
    count: dict[tuple[Any, ...], int] = {}
    for node in flat.graph_def.node:
        answer = decisions.answer_of_op[node.name]
        if not isinstance(answer, Split) or (node.op == "Const" and answer.is_repeated):
            continue  # a copy of a constant is the constant
        inputs = tuple(_inputs(flat, properties, decisions, node, answer, sizes))
        bare, copy = _bare(node), _bare(node)
        for name, value in answer.attrs.items():
            copy.attr[name].CopyFrom(value)
        written = [n.SerializeToString(deterministic=True) for n in (bare, copy)]
        key = (*written, *(i.key for i in inputs), answer.outputs, answer.is_mean)
        count[key] = count.get(key, 0) + 1
        if key not in first:
            shapes = properties.shape_of[node.name]
            each = [_elements(i.shape) for i in inputs], [_elements(s) for s in shapes]
            first[key] = OpCase(
                node.name, 1, bare, copy, inputs, answer.outputs, sizes, answer.is_mean,
                flat.graph_def.library if _calls(bare) else None,
                sum(each[0]) + sum(each[1]), _work(node.op, *each),
            )  # fmt: skip
    return [dataclasses.replace(case, count=count[key]) for key, case in first.items()]


def _inputs(
    flat: FlatGraph,
    properties: TensorProperties,
    decisions: Decisions,
    node: Any,
    answer: Split,
    sizes: tuple[int, ...],
) -> Iterator[CaseInput]:
    names = [name for name in node.input if not name.startswith("^")]
    for position, (name, state) in enumerate(zip(names, answer.inputs, strict=True)):
        source = parse_input(name)
        dtype = properties.dtype_of[source.op][source.output]
        if dtype == "resource":
            yield _handle(flat, name, state)
            continue
        value = decisions.values.value(with_index(source.tensor))
        entries = answer.shape_inputs.get(position, {})
        own: tuple[np.ndarray, ...] = ()
        if entries and value is not None:
            own = tuple(of_shard(value, entries, size) for size in sizes)
        if value is not None and "float" in dtype and not (value.size == 1 and value.all()):
            value = None  # random numbers prove more than zeros, and are alike for many ops
        shape = properties.shape_of[source.op][source.output]
        yield CaseInput(shape, dtype, state, value, own)


def of_shard(value: np.ndarray, entries: Mapping[int, Sharded], size: int) -> np.ndarray:
    """What an input that holds sizes is for a shard that has `size` entries of the batch."""
    changed = np.array(value).reshape(-1)
    for entry, state in entries.items():
        if changed[entry] != -1:
            changed[entry] = state.outer * size * state.inner
    return changed.reshape(np.shape(value))


def _handle(flat: FlatGraph, name: str, state: State) -> CaseInput:
    """The variable behind a handle; no shape where there is none."""
    import tensorflow as tf

    producer = flat.nodes[parse_input(source_of(name, flat.nodes, op_types.HANDLE)).op]
    if producer.op != "VarHandleOp":
        return CaseInput(None, "resource", state)
    shape = shape_of(producer.attr["shape"].shape)
    dtype = tf.as_dtype(producer.attr["dtype"].type).name
    return CaseInput(shape, dtype, state, is_handle=True)


def _bare(node: Any) -> Any:
    """The op alone: what it is called, reads and where it lies make no difference."""
    bare = type(node)(op=node.op)
    for name, value in node.attr.items():
        if not name.startswith("_") or name == "_kernel":
            bare.attr[name].CopyFrom(value)
    return bare


def _calls(node: Any) -> bool:
    return any(
        value.WhichOneof("value") == "func" or value.list.func for value in node.attr.values()
    )


def _elements(shape: Shape) -> int:
    return math.prod(max(size, 1) for size in shape or ())


def _work(op_type: str, inputs: list[int], outputs: list[int]) -> float:
    """[m, k] by [k, n] takes m * k * n multiplications: the root of the three sizes' product."""
    if ("MatMul" in op_type or "Conv" in op_type or op_type == "Einsum") and len(inputs) > 1:
        return math.sqrt(math.prod(float(n) for n in (*sorted(inputs)[-2:], outputs[0])))
    return float(sum(inputs) + sum(outputs))
