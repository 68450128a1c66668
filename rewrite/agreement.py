"""When two values of one tensor count as the same.

Bitwise equal, or for floats |difference| <= tolerance * largest |value| of the tensor, where the
tolerance is `rtol` for float32 and follows the precision of the floats that were computed with:
a float32 loss of a model in mixed precision is no more exact than bfloat16. TensorFlow fuses and
orders sums differently where transfers cut a graph, so that bitwise equality can't be asked for.

A tensor all of whose values are below a few rounding errors of the run's largest value is such
rounding errors itself: the gradient of an attention's key bias is zero on paper, and so is that
of a convolution's bias before a batch normalisation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import ml_dtypes
import numpy as np
import tensorflow as tf

# 84 units in the last place, as 1e-5 is for float32, would let bfloat16 off with anything.
_LOOSEST = 1e-2
_NOISE = 4.0  # in rounding errors of the run's largest value
_FLOAT32_EPSILON = float(np.finfo(np.float32).eps)


@dataclasses.dataclass(frozen=True)
class OutputAgreement:
    """How far two runs may differ.

    Attributes:
      rtol: for float32, relative to a tensor's largest value.
      epsilon: of the narrowest float that the model computes with; 0 for that of each tensor.
      largest: |value| of what the run computed.
    """

    rtol: float
    epsilon: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, values: Iterable[np.ndarray], rtol: float, narrowest: str = "") -> OutputAgreement:
        """For a run that computed `values`, in a model whose narrowest float is named."""
        largest = max((_largest(value) for value in values), default=0.0)
        return cls(rtol, _epsilon(tf.as_dtype(narrowest)) if narrowest else 0.0, largest)

    def within(self, value: np.ndarray, other: np.ndarray) -> bool:
        """Whether `other` is the same as `value`."""
        value, other = np.asarray(value), np.asarray(other)
        if value.shape != other.shape or value.dtype != other.dtype:
            return False
        if value.tobytes() == other.tobytes() and value.dtype != object:
            return True
        dtype = tf.as_dtype(value.dtype)
        if not (dtype.is_floating or dtype.is_complex):
            return bool(np.array_equal(value, other))
        epsilon = max(_epsilon(dtype), self.epsilon)
        tolerance = min(self.rtol * epsilon / _FLOAT32_EPSILON, _LOOSEST) * _largest(value)
        noise = _NOISE * epsilon * self.largest
        if max(_largest(value), _largest(other)) <= noise:
            tolerance = noise
        wide = np.complex128 if dtype.is_complex else np.float64
        value, other = value.astype(wide), other.astype(wide)
        return bool(np.allclose(other, value, rtol=0.0, atol=tolerance, equal_nan=True))


def _epsilon(dtype: tf.DType) -> float:
    real = dtype.real_dtype if dtype.is_complex else dtype
    return float(ml_dtypes.finfo(real.as_numpy_dtype).eps)  # type: ignore[no-untyped-call]


def _largest(value: np.ndarray) -> float:
    """The largest finite |value|; 0 for what is no float."""
    value = np.asarray(value)
    if value.dtype == object:
        return 0.0
    dtype = tf.as_dtype(value.dtype)
    if not (dtype.is_floating or dtype.is_complex):
        return 0.0
    wide = np.complex128 if dtype.is_complex else np.float64
    finite = np.abs(value[np.isfinite(value)].astype(wide))
    return float(finite.max()) if finite.size else 0.0


def max_abs_diff(value: np.ndarray, other: np.ndarray) -> float:
    """Largest |difference|; 0 where both are the same infinity or NaN, inf for other shapes."""
    value, other = np.asarray(value), np.asarray(other)
    if value.shape != other.shape or value.dtype != other.dtype:
        return math.inf
    if value.dtype == object or value.dtype.kind in "SU":
        return 0.0 if np.array_equal(value, other) else math.inf
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    value, other = value.astype(wide), other.astype(wide)
    different = ~((value == other) | (np.isnan(value) & np.isnan(other)))
    if not different.any():
        return 0.0
    largest = float(np.max(np.abs(value[different] - other[different])))
    return largest if math.isfinite(largest) else math.inf
