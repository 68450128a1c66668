"""Random inputs that an op can work on: labels are classes, ids are rows, roots of positives.

A polynomial of its inputs is given whole numbers in float64: all that it adds up is exact then, in
any order, so that whole and parts must be equal bit for bit. Of two polynomials that differ, random
whole numbers from a range make the same with a probability of degree / range for each element
(Schwartz and Zippel).
"""

import math
import zlib

import numpy as np

from graphs.op_types import POLYNOMIAL, listed
from graphs.protos import DType, attribute
from rewrite.split.decision import GRADIENTS, NORMS
from rewrite.split.prove.ops.op_case import CaseInput, OpCase
from rewrite.split.prove.parts import combined, cut
from rewrite.split.states import Partial, Sharded

_FEW = 9
_EXACT = (np.dtype(np.float64), np.dtype(np.complex128))
_MOST_WHOLE = 1 << 10
"""Of so large numbers, products of two are exact in float64 where 2^33 of them are added up."""
_BOOL = 10  # tensorflow.DataType
_PERIOD = 1_000_003
"""Random numbers repeat after that many: a prime, so that no row or part is like another one."""
_POSITIVE = listed("of_positive")
_ABOVE_ONE = frozenset({"Acosh", "Zeta"})
_PRODUCTS = frozenset({"Prod", "Cumprod", "UnsortedSegmentProd"})
_EXTREMES = frozenset({"Max", "Min", "UnsortedSegmentMax", "UnsortedSegmentMin"})
_MANY = 10**6
_COMPARED = frozenset("Equal NotEqual ApproximateEqual Less LessEqual Greater GreaterEqual".split())
# Of random numbers no two would be equal, none whole, and few finite ones are what these ask for.
_WHOLE_NUMBERS = frozenset(
    "Polygamma MaxPoolGradGrad MaxPoolGradGradV2 MaxPool3DGrad MaxPool3DGradGrad".split()
)
_FINITE = frozenset({"IsFinite", "IsInf", "IsNan"})
# {op: the input that is a lower end; the next one is the upper end}
_LOWER_END = {
    "ClipByValue": 1,
    "FakeQuantWithMinMaxVars": 1,
    "FakeQuantWithMinMaxVarsPerChannel": 1,
    "FakeQuantWithMinMaxVarsGradient": 2,
    "FakeQuantWithMinMaxVarsPerChannelGradient": 2,
    "QuantizeAndDequantizeV2": 1,
    "QuantizeAndDequantizeV3": 1,
    "QuantizeAndDequantizeV4": 1,
    "QuantizeAndDequantizeV4Grad": 2,
}
# {op: the input that has to be positive}: a variance, a scale
_POSITIVE_INPUT = {
    **dict.fromkeys(NORMS | GRADIENTS, 4),
    "ScaleAndTranslate": 2,
    "ScaleAndTranslateGrad": 2,
}
_KEPT_FOR_GRADIENT = 5  # by the kernel of a normalisation: a CPU's keeps nothing
_ONE_DECIDES = frozenset({"All", "Any"})
# Input 1 names rows of input 0.
_ROWS = frozenset("Gather ResourceGather SparseSegmentSum SparseSegmentMean".split())
# Input 1 names classes, along the last dimension of input 0.
_CLASSES = frozenset({"SparseSoftmaxCrossEntropyWithLogits", "InTopK", "InTopKV2"})
# Integers name rows of input 0.
_UPDATE_ROWS = ("ResourceScatter", "ResourceSparseApply")
# Input 1 is a place in a list.
_IN_LIST = frozenset({"TensorListGetItem", "TensorListSetItem"})
# Input 0 holds matrices whose eigenvalues have to be positive, or far from zero.
_DEFINITE = frozenset("Cholesky MatrixInverse MatrixLogarithm MatrixSolve MatrixSquareRoot".split())
_SEGMENTS = frozenset(
    "UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd "
    "UnsortedSegmentMean".split()
)


class CantMakeUp(Exception):
    """An input that has no values to make up; the message says why."""


def made_up(case: OpCase, position: int, dtype: DType) -> tuple[np.ndarray, list[np.ndarray]]:
    """An input of an op: the whole tensor, and what each copy reads.

    Args:
      position: which data input.
      dtype: a numpy type; float64 where the op is run in it.

    Raises:
      CantMakeUp: its shape or what it may hold is not known.
    """
    given = case.inputs[position]
    rng = np.random.default_rng(zlib.crc32(f"{case.name}:{position}".encode()))
    if isinstance(given.state, Partial):
        terms = [_random(case, position, rng, dtype) for _ in case.sizes]
        return combined(terms, given.state.combine).astype(dtype), terms
    whole = (
        _random(case, position, rng, dtype) if given.value is None else given.value.astype(dtype)
    )
    if given.rows is not None:
        # Numbers of rows of which each batch entry has `rows.inner`, and the same for each shard.
        assert isinstance(given.state, Sharded)
        entry = np.arange(len(whole), dtype=whole.dtype) // given.state.inner
        whole = entry * given.rows.inner + whole % given.rows.inner
        parts = cut(whole, given.state, case.sizes)
        firsts = [given.rows.size(sum(case.sizes[:shard])) for shard in range(len(case.sizes))]
        pairs = zip(parts, firsts, strict=True)
        return whole, [(part - first).astype(whole.dtype) for part, first in pairs]
    if given.sizes_at:
        return whole, [given.value_of(size).astype(dtype) for size in case.sizes]
    if isinstance(given.state, Sharded):
        return whole, cut(whole, given.state, case.sizes)
    return whole, [whole] * len(case.sizes)


def _random(case: OpCase, position: int, rng: np.random.Generator, dtype: DType) -> np.ndarray:
    given = case.inputs[position]
    if case.node.op in GRADIENTS and position == _KEPT_FOR_GRADIENT and given.shape is None:
        return np.zeros(0, dtype)
    shape = _complete(given)
    if given.dtype == "bool" and case.node.op in _ONE_DECIDES:
        # One value is another than all others: of many random ones `All` and `Any` know the answer,
        # whatever their parts combine to.
        values = np.full(shape, case.node.op == "All")
        if values.size:
            values.reshape(-1)[rng.integers(values.size)] ^= True
        return values
    if given.dtype == "bool":
        return rng.random(shape) < 0.5
    if given.dtype == "string":
        return rng.integers(0, 100, shape).astype(np.bytes_).astype(object)
    if "int" in given.dtype:
        if case.node.op in _COMPARED:
            return _around(case, position, rng, math.prod(shape)).reshape(shape).astype(dtype)
        low, high = _integers(case, position)
        whole = rng.integers(low, high, shape)
        is_factor = case.node.op in _PRODUCTS and position == 0
        return (2 * whole + 1 if is_factor else whole).astype(dtype)  # many even ones make a zero
    if "float" in given.dtype or given.dtype.startswith("complex"):
        count = min(math.prod(shape), _PERIOD)
        numbers = np.resize(_floats(case, position, rng, count, dtype).astype(dtype), shape)
        if case.node.op in _DEFINITE and position == 0:
            # A A* / n + I of each matrix A [n, n]: its eigenvalues are 1 and more.
            squares = numbers @ np.conj(np.swapaxes(numbers, -1, -2)) / numbers.shape[-1]
            return (squares + np.eye(numbers.shape[-1])).astype(numbers.dtype)
        if case.node.op == "HistogramFixedWidth" and position == 1:
            return np.sort(numbers)  # the lower end comes first
        return numbers
    raise CantMakeUp(f"a {given.dtype} has no values to make up")


def is_exact(case: OpCase, dtype: DType) -> bool:
    """Whether an op that computes in a numpy type adds nothing that rounds, whatever it is."""
    return case.node.op in POLYNOMIAL and np.dtype(dtype) in _EXACT and not case.is_mean


def _floats(
    case: OpCase, position: int, rng: np.random.Generator, count: int, dtype: DType
) -> np.ndarray:
    """Numbers of which an op makes others: one that is constant, or NaN, would prove nothing."""
    op = case.node.op
    if op in _POSITIVE or _POSITIVE_INPUT.get(op) == position:
        return rng.uniform(0.1, 0.9, count)
    if op in _ABOVE_ONE:
        return rng.uniform(1.1, 2.9, count)
    if op in _PRODUCTS:  # so that many of them make no zero
        return rng.uniform(0.9, 1.1, count) * rng.choice([-1.0, 1.0], count)
    if op in _COMPARED:
        return _around(case, position, rng, count)
    if op in _WHOLE_NUMBERS:
        return rng.integers(1, _FEW, count).astype(np.float64)
    if op == "Cast" and case.node.attr["DstT"].type == _BOOL:
        return rng.integers(0, 2, count).astype(np.float64)
    if op == "Bucketize":
        ends = case.node.attr["boundaries"].list.f
        return rng.uniform(min(ends, default=0.0) - 1.0, max(ends, default=0.0) + 1.0, count)
    if is_exact(case, dtype):
        values = rng.integers(1 - _MOST_WHOLE, _MOST_WHOLE, count).astype(np.float64)
    else:
        values = rng.standard_normal(count)
    if op in _FINITE:
        values[rng.random(count) < 0.25] = np.inf
        values[rng.random(count) < 0.25] = np.nan
    if position - _LOWER_END.get(op, position + 2) in (0, 1):
        return np.abs(values) * (-1.0 if position == _LOWER_END[op] else 1.0)
    if case.inputs[position].dtype.startswith("complex"):
        return values + 1j * rng.permutation(values)
    return values


def _around(case: OpCase, position: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """Numbers some of which are what an input is compared with, as far as that is known."""
    known = [each.value for i, each in enumerate(case.inputs) if i != position]
    others = [value.reshape(-1) for value in known if value is not None and value.size]
    if not others:
        return rng.integers(1, _FEW, count)
    return rng.choice(others[0], count) + rng.integers(-1, 2, count)


def _complete(given: CaseInput) -> tuple[int, ...]:
    if given.shape is None or min(given.shape, default=0) < 0:
        raise CantMakeUp("the shape of an input is not known before the run")
    return given.shape


def _integers(case: OpCase, position: int) -> tuple[int, int]:
    """The lowest integer of an input, and one more than the highest."""
    op, inputs = case.node.op, case.inputs
    if position == 0 and op == "OneHot":
        return 0, _value(inputs[1])
    if op == "Cast" and case.node.attr["DstT"].type == _BOOL:
        return 0, 2
    if op == "Sign":
        return -1, 2
    if position == 0 and op in _EXTREMES:
        return 1, _MANY
    if position == 0 and op == "Bucketize":
        ends = case.node.attr["boundaries"].list.f
        return int(min(ends, default=0.0)) - 1, int(max(ends, default=0.0)) + 2
    if position == 0 and op in ("Bincount", "DenseBincount") and inputs[1].value is not None:
        # In a long row all small numbers are there.
        is_binary = op == "DenseBincount" and attribute(case.node, "binary_output").b
        return 0, max(_value(inputs[1]), _complete(inputs[0])[-1] if is_binary else 0)
    if position == 0 and op == "ScatterNd":
        return 0, _places(inputs[0], inputs[2].value)
    if op.startswith(_UPDATE_ROWS):
        return 0, _complete(inputs[0])[0]
    if position == 1:
        if op in _ROWS or op in _IN_LIST:
            return 0, _complete(inputs[0])[0]
        if op in _CLASSES:
            return 0, _complete(inputs[0])[-1]
        if op in ("GatherNd", "ResourceGatherNd"):
            return 0, _places(inputs[1], np.array(_complete(inputs[0])))
        if op in ("StridedSlice", "StridedSliceGrad"):  # one place, or all of it
            sizes = inputs[0].value if op.endswith("Grad") else _complete(inputs[0])
            is_one_place = attribute(case.node, "shrink_axis_mask").i and sizes is not None
            return 0, int(np.min(sizes)) if is_one_place else 1  # type: ignore[arg-type]
        if op == "ReverseSequence":
            return 0, 1 + _complete(inputs[0])[case.node.attr["seq_dim"].i]
        if op == "GatherV2":
            return 0, _complete(inputs[0])[_value(inputs[2])]
        if op in _SEGMENTS:
            return 0, _value(inputs[2])
    if position == 2 and op.startswith("MaxPoolGradWithArgmax"):
        return 0, int(np.prod(_complete(inputs[0])[1:]))
    return 1, _FEW


def _places(given: CaseInput, shape: np.ndarray | None) -> int:
    """Of indices [..., k] into a tensor of this shape: its smallest size among the first k."""
    if shape is None:
        raise CantMakeUp("what its integers may be is not known before the run")
    return int(min(shape[: _complete(given)[-1]], default=1))


def _value(given: CaseInput) -> int:
    if given.value is None:
        raise CantMakeUp("what its integers may be is not known before the run")
    return int(given.value)
