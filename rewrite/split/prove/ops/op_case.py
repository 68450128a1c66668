"""A split op that is proven: what it is whole, and what its copies are."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.protos import FunctionDef, NodeDef
from rewrite.split.states import Partial, Sharded, State

Shape = tuple[int, ...] | None
_COPIES = 2  # as an array, and in TensorFlow


@dataclasses.dataclass(frozen=True)
class CaseInput:
    """A data input of a case.

    Attributes:
      shape: of the whole tensor; of the variable where it is a variable's handle.
      dtype: of the tensor or the variable.
      state: what the copies read.
      value: the whole tensor, where no run can change it.
      sizes_at: {element of the value: the state whose size it is}, where the input holds sizes.
      rows: how the rows that it names count the batch, where each entry names rows of its own.
      is_handle: whether it is the handle of a variable.
      is_list: whether it is a TensorList of the rows of such a tensor.
      is_optional: whether it is an Optional that holds such a tensor.
    """

    shape: Shape
    dtype: str
    state: State
    value: np.ndarray | None = None
    sizes_at: Mapping[int, Sharded] = dataclasses.field(default_factory=dict)
    is_handle: bool = False
    is_list: bool = False
    is_optional: bool = False
    rows: Sharded | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What two inputs that are alike have in common."""
        value = self.value
        written = () if value is None else (str(value.dtype), value.shape, value.tobytes())
        about = (*written, *self.sizes_at.items())
        kind = self.is_handle, self.is_list, self.is_optional
        return self.shape, self.dtype, self.state, about, kind, self.rows

    def value_of(self, size: int) -> np.ndarray:
        """The value where `size` entries of the batch are all that there is."""
        assert self.value is not None
        return of_shard(self.value, self.sizes_at, size)


@dataclasses.dataclass(frozen=True)
class OpCase:
    """A split op: what it is whole, and what its copies are.

    Attributes:
      name: the first op of the step that is so.
      count: how many there are.
      node: the op, without inputs and name.
      copy: one of its copies, which are all alike.
      inputs: its data inputs.
      outputs: the state of each output; of a TensorList that of all its elements in one tensor, of
        an Optional that of what it holds.
      lists: {output that is a TensorList: the shape of an element}.
      shapes: of each whole output; of an Optional that of what it holds.
      sizes: entries of the batch in each shard.
      is_mean: whether terms are weighted by their part of the batch.
      library: the functions that it calls; None where it calls none.
      is_widened: whether it is run in float64, where there is a kernel for that.
    """

    name: str
    count: int
    node: NodeDef
    copy: NodeDef
    inputs: tuple[CaseInput, ...]
    outputs: tuple[State, ...]
    lists: Mapping[int, Shape]
    shapes: Sequence[Shape]
    sizes: tuple[int, ...]
    is_mean: bool
    library: FunctionDef
    is_widened: bool = True

    @property
    def may_fail_widened(self) -> bool:
        """Whether it may run in its own types alone: TensorFlow's float64 kernels of convolutions'
        gradients know no groups."""
        return self.is_widened and self.node.op.startswith("Conv2DBackprop")

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.node.op)

    @property
    def num_elements(self) -> int:
        """Elements of all whole inputs and outputs together."""
        return sum(map(_elements, (*(i.shape for i in self.inputs), *self.shapes)))

    @property
    def work(self) -> float:
        """See operations_of."""
        return operations_of(self.node.op, [each.shape for each in self.inputs], self.shapes)

    @property
    def num_bytes(self) -> int:
        """What it takes to run it whole and in parts: of what isn't cut each shard has its own."""
        read = [(i.shape, isinstance(i.state, Partial)) for i in self.inputs]
        made = [
            (shape, not isinstance(state, Sharded))
            for shape, state in zip(self.shapes, self.outputs, strict=True)
        ]
        held = sum(
            _elements(shape) * (1 + (len(self.sizes) if is_whole else 1))
            for shape, is_whole in (*read, *made)
        )
        return _COPIES * 8 * held


@dataclasses.dataclass(frozen=True)
class CaseOutcome:
    """What came of running one.

    Attributes:
      not_proven: why nothing could be compared; "" where it was.
      differs: how the parts differ from the whole; "" where they are equal.
      is_exact: whether they are equal bit for bit, as they had to be.
    """

    not_proven: str = ""
    differs: str = ""
    is_exact: bool = dataclasses.field(default=False, compare=False)


def bare_op(node: NodeDef) -> NodeDef:
    """The op alone: what it is called, reads and where it lies make no difference."""
    kept = {key: node.attr[key] for key in node.attr if key[:1] != "_" or key == "_kernel"}
    return type(node)(op=node.op, attr=kept)


def operations_of(op_type: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> float:
    """About how many operations an op takes.

    [m, k] by [k, n] takes m * k * n multiplications: the root of the three sizes' product.
    """
    read, made = ([_elements(shape) for shape in shapes] for shapes in (inputs, outputs))
    if ("MatMul" in op_type or "Conv" in op_type or op_type == "Einsum") and len(read) > 1:
        return math.sqrt(math.prod(map(float, (*sorted(read)[-2:], made[0]))))
    return float(sum(read) + sum(made))


def _elements(shape: Shape) -> int:
    return math.prod(max(size, 1) for size in shape or ())


def of_shard(value: np.ndarray, sizes_at: Mapping[int, Sharded], size: int) -> np.ndarray:
    """What an input that holds sizes is for a shard that has `size` entries of the batch."""
    changed = np.array(value).reshape(-1)
    for element, state in sizes_at.items():
        if changed[element] != -1:
            changed[element] = state.size(size)
    return changed.reshape(np.shape(value))
