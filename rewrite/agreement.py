"""Says when two values of one tensor count as the same.

Bitwise equal, or for floats |difference| <= tolerance * largest |value| of the tensor, where the
tolerance is RTOL for float32 and follows the precision of the floats that were computed with:
a float32 loss of a model in mixed precision is no more exact than bfloat16. TensorFlow fuses and
orders sums differently where transfers cut a graph, so that bitwise equality can't be asked for.

A tensor all of whose values are below a few rounding errors of the run's largest value is such
rounding errors itself: the gradient of an attention's key bias is zero on paper, and so is that
of a convolution's bias before a batch normalisation.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import ml_dtypes
import numpy as np

from graphs.protos import DType

RTOL = 1e-5
# 84 units in the last place, as 1e-5 is for float32, would let bfloat16 off with anything.
_LOOSEST = 1e-2
_MORE_SUMS = 100.0
_NOISE = 4.0  # in rounding errors of the run's largest value
_CHAOTIC = 1e-3
_SMALLEST = 1e-300
_FLOAT32_EPSILON = float(np.finfo(np.float32).eps)
_CHUNK = 2**22


@dataclasses.dataclass(frozen=True)
class OutputAgreement:
    """How far two runs may differ.

    Attributes:
      epsilon: of the narrowest float that the model computes with; 0 for that of each tensor.
      largest: |value| of what the run computed.
    """

    epsilon: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, values: Iterable[np.ndarray], narrowest: str = "") -> "OutputAgreement":
        """For a run that computed `values`; `narrowest` is the model's least precise float type."""
        biggest = max((largest(np.asarray(value)) for value in values), default=0.0)
        return cls(
            _epsilon(getattr(ml_dtypes, narrowest, narrowest)) if narrowest else 0.0, biggest
        )

    def nudged(self, value: np.ndarray, seed: int) -> np.ndarray:
        """Floats, each one rounding error further up or down."""
        if not _is_float(value):
            return value
        epsilon = max(_epsilon(value.dtype), self.epsilon)
        up = np.random.default_rng(seed).integers(0, 2, value.shape) > 0
        factor = np.where(up, 1.0 + epsilon, 1.0 - epsilon)
        return (value.astype(_wide(value)) * factor).astype(value.dtype)

    def within(self, value: np.ndarray, other: np.ndarray) -> bool:
        """Whether `other` is the same as `value`."""
        value, other = np.asarray(value), np.asarray(other)
        if value.dtype != other.dtype or not _is_float(value):
            return value.dtype == other.dtype and np.array_equal(value, other)
        epsilon, size = max(_epsilon(value.dtype), self.epsilon), largest(value)
        tolerance = min(RTOL * epsilon / _FLOAT32_EPSILON, _LOOSEST) * size
        noise = _NOISE * epsilon * self.largest
        if max(size, largest(other)) <= noise:
            tolerance = noise
        return most_apart(value, other) <= tolerance


def grown(value: np.ndarray, nudged: Sequence[np.ndarray], other: np.ndarray) -> bool:
    """Whether `other` is no further from `value` than rounding errors alone may lead.

    Sums in another order err in many places, nudged runs only where they begin.

    Args:
      nudged: values of runs that began a rounding error away.
      other: the same of a model that should compute it.
    """
    if _is_float(value) and not np.isfinite(value).all():
        return bool(value.shape == other.shape)
    noise = max(most_apart(value, each) for each in nudged)
    exact = noise > 0.0 and not _is_float(value)
    return exact or most_apart(value, other) <= _MORE_SUMS * noise


@dataclasses.dataclass(frozen=True)
class WideAgreement:
    """How far two runs in float64 may be apart to count as the same.

    That is what the unsplit step itself is apart when its variables begin one rounding error away:
    sums in another order do no other thing. A hundred times that is let pass, since the split step
    has other sums in many places, and at least the last six of sixteen digits.

    Attributes:
      rounding: of the narrowest floats that are computed with: what a run is nudged by.
      floor: what is always let pass, in the largest |value| of a tensor.
      nothing: what is that small beside the largest |value| of the run is a rounding error itself.
      largest: |value| of what the run computed.
    """

    rounding: float
    floor: float
    nothing: float
    largest: float = 0.0

    def tolerance(self, value: np.ndarray, again: np.ndarray) -> float | None:
        """How far another run may be from a step and its nudged run; None: nothing can be said."""
        noise = most_apart(value, again)
        if value.dtype.kind not in "fc":
            return 0.0 if noise == 0 else None
        if not is_finite(value):
            return None
        nothing, size = self.largest * self.nothing, largest(value)
        if size <= nothing and noise <= nothing:
            return nothing
        if not _MORE_SUMS * noise <= _CHAOTIC * size:
            return None
        return max(_MORE_SUMS * noise, self.floor * size)

    def relative(self, apart: float, value: np.ndarray) -> float:
        """A difference in the largest |value| of a tensor."""
        return apart / max(largest(value), self.nothing * self.largest, _SMALLEST)


DOUBLE = WideAgreement(2.0**-52, 1e-10, 1e-14)
NARROW = WideAgreement(2.0**-24, 1e-4, 1e-6)
"""Where some ops have no float64 kernels."""
OWN = WideAgreement(2.0**-24, 1e-3, 1e-5)
"""Where a step runs in its own types only."""


def is_finite(value: np.ndarray) -> bool:
    """Whether all floats are."""
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def difference(
    whole: np.ndarray, other: np.ndarray, tolerance: float, parts: Sequence[np.ndarray]
) -> str:
    """How two arrays differ; "" where they don't.

    Args:
      other: what the parts are together.
      tolerance: how far floats may be apart, in the largest value of `whole` or `parts`.
      parts: what rounding errors come from, beside `whole`.
    """
    if whole.shape != other.shape:
        return f"its shape is {other.shape}, wanted {whole.shape}"
    if not _is_float(whole):
        return "" if np.array_equal(whole, other) else "its values differ"
    most = _numbers_apart(whole, other)
    scale = max(largest(array) for array in (whole, *parts)) if most else 0.0
    if most <= tolerance * scale:
        return ""
    return f"it differs by {most:.3g}, where values are up to {scale:.3g}"


def largest(array: np.ndarray) -> float:
    """The largest finite |value|; 0 for what is no float."""
    if not _is_float(array):
        return 0.0
    finite = (np.abs(chunk[np.isfinite(chunk)]) for chunk in _chunks(array))
    return max((float(values.max()) for values in finite if values.size), default=0.0)


def most_apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |difference|; the same infinity or NaN has none.

    It is infinite for another shape or type, and for other texts.
    """
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if _is_float(one):
        return _numbers_apart(one, other)
    if np.array_equal(one, other):
        return 0.0
    # In float64 large whole numbers that differ may be the same.
    return max(1.0, _numbers_apart(one, other)) if one.dtype.kind in "biu" else math.inf


def _numbers_apart(one: np.ndarray, other: np.ndarray) -> float:
    most = 0.0
    for mine, its in zip(_chunks(one), _chunks(other), strict=True):
        apart = ~((mine == its) | (np.isnan(mine) & np.isnan(its)))
        if apart.any():
            there = float(np.max(np.abs(mine[apart] - its[apart])))
            most = math.inf if math.isnan(there) else max(most, there)
    return most


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in float64, not all at once."""
    flat = array.reshape(-1)
    for begin in range(0, len(flat), _CHUNK):
        yield flat[begin : begin + _CHUNK].astype(_wide(array))


def _epsilon(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _is_float(array: np.ndarray) -> bool:
    """Whether it holds floats, numpy's own ones or others: it knows no bfloat16."""
    return array.dtype.name.startswith(("float", "complex", "bfloat"))


def _wide(array: np.ndarray) -> type:
    """A type that numpy computes with."""
    return np.complex128 if array.dtype.kind == "c" else np.float64
