"""The training step of a compiled Keras model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from graphs.errors import UsageError
from tfplace.api.example_call import Call, as_tensors, example_call


def is_keras_model(step: Any) -> bool:
    """Whether it is a model whose training step is meant."""
    return hasattr(step, "train_step") and hasattr(step, "trainable_variables")


def keras_step(model: Any, example_args: Any) -> Callable[..., Any]:
    """The training step of a compiled Keras model, all of its variables made.

    Args:
      model: tf_keras or Keras 3.
      example_args: (x, y) or (x, y, sample_weight).

    Raises:
      UsageError: it is not compiled, or there is no example.
    """
    if getattr(model, "optimizer", None) is None:
        raise UsageError("placing a Keras model: it is not compiled; call model.compile first")

    def train_step(*data: Any) -> Any:
        return model.train_step(data)

    call = example_call(train_step, example_args)
    if not call.positional:
        raise UsageError("placing a Keras model: wanted example_args=(x, y)")
    _build(model, call)
    # Metrics make their variables when they are used for the first time, which must not be while
    # the step is traced for good.
    kept = [(variable, variable.numpy()) for variable in _variables(model)]
    train_step(*call.positional)
    for variable, value in kept:
        variable.assign(value)
    reset_metrics(model)
    return train_step


def reset_metrics(model: Any) -> list[Any]:
    """Sets the metrics of a model to their start; returns their variables as TensorFlow's."""
    variables = []
    for metric in model.metrics:
        metric.reset_state()
        variables += metric.variables
    return [v if isinstance(v, tf.Variable) else v.value for v in variables]


def _build(model: Any, call: Call) -> None:
    model(as_tensors(call.positional[0]))
    model.optimizer.build(model.trainable_variables)


def _variables(model: Any) -> list[Any]:
    optimizer = model.optimizer.variables
    return [*model.variables, *(optimizer() if callable(optimizer) else optimizer)]
