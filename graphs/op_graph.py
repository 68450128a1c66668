"""The op graph of one training run, as arrays.

Dimension letters, here and everywhere: N ops, T tensors, U uses, D devices.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SHAPE_DIMS = 4


@dataclasses.dataclass(frozen=True)
class OpGraph:
    """Ops, the tensors they make, and who uses them (the contract, section 6).

    The contract is `tfplace/docs/contract.md`.

    Ops are in a topological order. A control edge is a use of a zero-byte tensor that its
    producer owns; an op has at most one such tensor.

    Attributes:
      op_names: [N] unique; an op inside a function is named by its call path.
      op_types: [N] TensorFlow op types; a unit (a loop, say) has the type of its head.
      tensor_producer: i4[T] op that makes the tensor; ascending.
      tensor_output: i4[T] output index at the producer; -1 for the control tensor.
      tensor_bytes: i8[T] what a transfer moves.
      tensor_alloc_bytes: i8[T] what the producer newly allocates; 0 where the output is its
        input's or a variable's buffer.
      tensor_shares: i4[T] the tensor whose buffer it needs as long as it is needed itself, -1 for
        none: one that its producer uses, or an earlier one of its producer's that shares none.
        Itself where its buffer is kept until the step ends, as of what is fed or fetched.
      tensor_takes_over: bool[T] whether it only takes that buffer over, instead of allocating,
        where nothing else needs it when its producer starts; and shares none otherwise.
      tensor_shape: i4[T, 4] leading dimensions, -1 where there is none or it is unknown.
      use_tensor, use_op: i4[U] distinct pairs, sorted by (tensor, op).
      op_persistent_bytes: i8[N] held for the whole step (variables).
      op_temp_bytes: i8[N] held while the op runs.
      colocation_group: i4[N] ops with one number must share a device; -1 for none.
    """

    op_names: Sequence[str]
    op_types: Sequence[str]
    tensor_producer: IntArray
    tensor_output: IntArray
    tensor_bytes: LongArray
    tensor_alloc_bytes: LongArray
    tensor_shares: IntArray
    tensor_takes_over: BoolArray
    tensor_shape: IntArray
    use_tensor: IntArray
    use_op: IntArray
    op_persistent_bytes: LongArray
    op_temp_bytes: LongArray
    colocation_group: IntArray

    @property
    def num_ops(self) -> int:
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        return len(self.tensor_producer)

    def op_edges(self) -> tuple[IntArray, IntArray, LongArray]:
        """Producer i4[U], consumer i4[U] and bytes i8[U] of each use, in the order of uses."""
        return (
            self.tensor_producer[self.use_tensor],
            self.use_op,
            self.tensor_bytes[self.use_tensor],
        )

    def by_type(self, *of_op: FloatArray | LongArray) -> list[tuple[Any, ...]]:
        """(op type, its number of ops, the sum over them of each array [N]), by name."""
        types, kind, counts = np.unique(
            np.asarray(self.op_types, dtype=str), return_inverse=True, return_counts=True
        )
        sums = [np.bincount(kind, each, len(types)).tolist() for each in of_op]
        return list(zip(types.tolist(), counts.tolist(), *sums, strict=True))
