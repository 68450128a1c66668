"""Keras models that tfplace and `tf.distribute` train: the same weights, batch and optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

_SEED = 0
_WEIGHT_STDDEV = 0.03


@dataclasses.dataclass(frozen=True)
class RivalModel:
    """A model, and the batch that every step trains on.

    Attributes:
      says: what it is, in a few words.
      build: makes the Keras model, inside the scope of a strategy or outside of any.
      batch: makes inputs and labels, the same each time; the batch comes first.
      optimizer: its name in `tf_keras.optimizers`.
    """

    says: str
    build: Callable[[], Any]
    batch: Callable[[], tuple[np.ndarray, np.ndarray]]
    optimizer: str = "Adam"


def with_weights(model: Any) -> Any:
    """The model with small weights that depend on their shapes and order alone."""
    generator = np.random.default_rng(_SEED)
    values = []
    for weight in model.get_weights():
        if weight.ndim > 1:  # biases, scales and offsets stay as Keras begins them
            stddev = min(_WEIGHT_STDDEV, float(np.prod(weight.shape[:-1])) ** -0.5)
            weight = stddev * generator.standard_normal(weight.shape, np.float32)
        values.append(weight)
    model.set_weights(values)
    return model


def _cnn(sizes: tuple[int, ...] = (64, 128, 256), side: int = 64) -> Any:
    from tf_keras import Sequential, layers

    model = Sequential([layers.Input((side, side, 3))])
    for size in sizes:
        model.add(layers.Conv2D(size, 3, padding="same", activation="relu"))
        model.add(layers.Conv2D(size, 3, padding="same", activation="relu"))
        model.add(layers.MaxPool2D() if size != sizes[-1] else layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10))
    return model


def _encoder(
    num_layers: int = 4, width: int = 256, num_tokens: int = 64, num_words: int = 2000
) -> Any:
    from tf_keras import Input, Model, layers

    tokens = Input((num_tokens,), dtype="int32")
    x = layers.Embedding(num_words, width)(tokens)
    for _ in range(num_layers):
        attended = layers.MultiHeadAttention(4, width // 4)(x, x)
        x = layers.LayerNormalization()(x + attended)
        inner = layers.Dense(4 * width, activation="relu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(width)(inner))
    return Model(tokens, layers.Dense(num_words)(x))


def _mlp(widths: tuple[int, ...] = (1024, 4096, 4096, 1000)) -> Any:
    from tf_keras import Sequential, layers

    model = Sequential([layers.Input((widths[0],))])
    for width in widths[1:-1]:
        model.add(layers.Dense(width, activation="relu"))
    model.add(layers.Dense(widths[-1]))
    return model


def _images(batch_size: int, *shape: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(_SEED)
    x = generator.standard_normal((batch_size, *shape), np.float32)
    return x, generator.integers(0, num_classes, batch_size, np.int32)


def _words(batch_size: int, num_tokens: int, num_words: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(_SEED)
    x, y = generator.integers(0, num_words, (2, batch_size, num_tokens), np.int32)
    return x, y


MODELS = {
    "cnn": RivalModel(
        "Keras CNN, six 3x3 convolutions, 64 to 256 wide, 64x64 images, batch 16",
        _cnn,
        lambda: _images(16, 64, 64, 3, num_classes=10),
    ),
    "encoder": RivalModel(
        "Keras encoder, 4 layers, 256 wide, 64 tokens, 2,000 words, batch 16",
        _encoder,
        lambda: _words(16, 64, 2000),
    ),
    "mlp": RivalModel(
        "Keras MLP, 1024-4096-4096-1000, batch 64",
        _mlp,
        lambda: _images(64, 1024, num_classes=1000),
    ),
    "mlp_sgd": RivalModel(
        "the same MLP with SGD, which keeps no moments",
        _mlp,
        lambda: _images(64, 1024, num_classes=1000),
        "SGD",
    ),
    "tiny": RivalModel(
        "Keras MLP, 8-16-4, batch 6: for tests",
        lambda: _mlp((8, 16, 4)),
        lambda: _images(6, 8, num_classes=4),
    ),
}
"""What can be compared, by name."""
COMPARED = ("cnn", "encoder", "mlp", "mlp_sgd")
"""What is compared unless others are named."""
