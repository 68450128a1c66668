"""The type of TensorFlow's tensors, which come without type hints."""

from typing import Any

Tensor = Any  # tf.Tensor
