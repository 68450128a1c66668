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
from collections.abc import Iterable, Sequence

import ml_dtypes
import numpy as np
import tensorflow as tf

RTOL = 1e-5
# 84 units in the last place, as 1e-5 is for float32, would let bfloat16 off with anything.
_LOOSEST = 1e-2
_MORE_SUMS = 100.0
_NOISE = 4.0  # in rounding errors of the run's largest value
_FLOAT32_EPSILON = float(np.finfo(np.float32).eps)


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
        largest = max((_largest(value) for value in values), default=0.0)
        return cls(_epsilon(tf.as_dtype(narrowest)) if narrowest else 0.0, largest)

    def nudged(self, value: np.ndarray, seed: int) -> np.ndarray:
        """Floats, each one rounding error further up or down."""
        if not _is_inexact(value):
            return value
        epsilon = max(_epsilon(tf.as_dtype(value.dtype)), self.epsilon)
        up = np.random.default_rng(seed).integers(0, 2, value.shape) > 0
        return (_wide(value) * np.where(up, 1.0 + epsilon, 1.0 - epsilon)).astype(value.dtype)

    def within(self, value: np.ndarray, other: np.ndarray) -> bool:
        """Whether `other` is the same as `value`."""
        value, other = np.asarray(value), np.asarray(other)
        if value.dtype != other.dtype or not _is_inexact(value):
            return value.dtype == other.dtype and np.array_equal(value, other)
        epsilon = max(_epsilon(tf.as_dtype(value.dtype)), self.epsilon)
        tolerance = min(RTOL * epsilon / _FLOAT32_EPSILON, _LOOSEST) * _largest(value)
        noise = _NOISE * epsilon * self.largest
        if max(_largest(value), _largest(other)) <= noise:
            tolerance = noise
        return max_abs_diff(value, other) <= tolerance


def grown(value: np.ndarray, nudged: Sequence[np.ndarray], other: np.ndarray) -> bool:
    """Whether `other` is no further from `value` than rounding errors alone may lead.

    Sums in another order err in many places, nudged runs only where they begin.

    Args:
      value: of a run.
      nudged: the same of runs that began a rounding error away.
      other: the same of a model that should compute it.
    """
    if _is_inexact(value) and not np.isfinite(value).all():
        return bool(value.shape == other.shape)
    noise = max(max_abs_diff(value, each) for each in nudged)
    exact = noise > 0.0 and not _is_inexact(value)
    return exact or max_abs_diff(value, other) <= _MORE_SUMS * noise


def _epsilon(dtype: tf.DType) -> float:
    real = dtype.real_dtype if dtype.is_complex else dtype
    return float(ml_dtypes.finfo(real.as_numpy_dtype).eps)  # type: ignore[no-untyped-call]


def _is_inexact(value: np.ndarray) -> bool:
    if value.dtype == object:
        return False
    dtype = tf.as_dtype(value.dtype)
    return bool(dtype.is_floating or dtype.is_complex)


def _wide(value: np.ndarray) -> np.ndarray:
    """Converts numbers to types that numpy computes with: it knows no bfloat16."""
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _largest(value: np.ndarray) -> float:
    """Returns the largest finite |value|; 0 for what is no float."""
    value = np.asarray(value)
    if not _is_inexact(value):
        return 0.0
    finite = np.abs(_wide(value[np.isfinite(value)]))
    return float(finite.max()) if finite.size else 0.0


def max_abs_diff(value: np.ndarray, other: np.ndarray) -> float:
    """Returns the largest |difference|; the same infinity or NaN has none, another shape inf."""
    value, other = np.asarray(value), np.asarray(other)
    if value.shape != other.shape or value.dtype != other.dtype:
        return math.inf
    if value.dtype == object or value.dtype.kind in "SU":
        return 0.0 if np.array_equal(value, other) else math.inf
    value, other = _wide(value), _wide(other)
    different = ~((value == other) | (np.isnan(value) & np.isnan(other)))
    if not different.any():
        return 0.0
    largest = float(np.max(np.abs(value[different] - other[different])))
    return largest if math.isfinite(largest) else math.inf
