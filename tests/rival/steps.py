"""The training step of a model: without a strategy, under one, and as a SavedModel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from tests.rival.models import RivalModel, with_weights

SIGNATURE = "train_step"
_LEARNING_RATE = 1e-4  # of a batch that is seen again and again: no loss should become 0
Step = Callable[[], float]


class Trained(tf.Module):
    """A model with its optimizer and a step: tf.function's own, so that it can be saved."""

    def __init__(self, model: RivalModel) -> None:
        super().__init__()
        x, y = model.batch()
        self.model = with_weights(model.build())
        self.optimizer = getattr(tf_keras.optimizers, model.optimizer)(_LEARNING_RATE)
        self.optimizer.build(self.model.trainable_variables)
        signature = [tf.TensorSpec(x.shape, x.dtype, "x"), tf.TensorSpec(y.shape, y.dtype, "y")]
        self.train_step = tf.function(self._train_step, input_signature=signature)

    def _train_step(self, x: Any, y: Any) -> dict[str, Any]:
        return {"loss": self.update(x, y, float(np.prod(y.shape)))}

    def update(self, x: Any, y: Any, num_labels: float) -> Any:
        """Trains on a part of a batch of num_labels labels; returns its share of the mean loss."""
        with tf.GradientTape() as tape:
            losses = tf_keras.losses.sparse_categorical_crossentropy(
                y, self.model(x, training=True), from_logits=True
            )
            loss = tf.reduce_sum(losses) / num_labels
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss


def save(model: RivalModel, path: str) -> None:
    """Writes what `tfplace optimize` is given: the step of one device, its batch fixed."""
    trained = Trained(model)
    tf.saved_model.save(trained, path, signatures={SIGNATURE: trained.train_step})


def unsplit(model: RivalModel) -> Step:
    """The step on this process's only device."""
    trained = Trained(model)
    x, y = map(tf.constant, model.batch())
    return lambda: float(trained.train_step(x, y)["loss"])


def distributed(model: RivalModel, strategy: Any) -> Step:
    """The step under a strategy: each replica has its part of the batch, and keeps it."""
    with strategy.scope():
        trained = Trained(model)
    parts = [np.array_split(array, strategy.num_replicas_in_sync) for array in model.batch()]
    num_labels = float(np.prod(model.batch()[1].shape))

    def own(arrays: list[np.ndarray]) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(arrays[context.replica_id_in_sync_group])
        )

    x, y = own(parts[0]), own(parts[1])

    @tf.function
    def step(x: Any, y: Any) -> Any:
        losses = strategy.run(trained.update, (x, y, num_labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return lambda: float(step(x, y))


def placed(model: RivalModel, path: str) -> Step:
    """The step that tfplace emitted; the batch comes from this process at every step."""
    import tfplace

    step = tfplace.load(path, start_workers=True).signatures[SIGNATURE]
    x, y = map(tf.constant, model.batch())
    return lambda: float(step(x=x, y=y)["loss"])
