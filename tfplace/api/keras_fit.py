"""`model.fit` with a placed step: Keras' own loop, callbacks and validation around it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from graphs.errors import UsageError

Pairs = Mapping[int, tuple[Any, Any]]


def fit(model: Any, step: Callable[..., Any], pairs: Pairs, arguments: Any, keywords: Any) -> Any:
    """Calls model.fit, whose steps are the placed ones.

    The values of the model's variables go to the placed ones when an epoch begins, and back as
    soon as Keras asks for its metrics, which it does before anything else at an epoch's end.

    Args:
      model: tf_keras or Keras 3.
      step: the placed step.
      pairs: {id of an original variable: (the original, the placed one)}, growing.
      arguments, keywords: of model.fit.

    Returns:
      What model.fit returns.

    Raises:
      UsageError: the model was changed since it was placed.
    """
    _require_the_same(model, pairs)
    training = _Training(model, step, pairs)
    given = keywords.get("callbacks") or []
    callbacks = [*(given if isinstance(given, list | tuple) else [given]), training.callback()]
    with training.in_place():
        return model.fit(*arguments, **{**keywords, "callbacks": callbacks})


class _Training:
    """One call of fit."""

    def __init__(self, model: Any, step: Callable[..., Any], pairs: Pairs) -> None:
        self._model, self._step, self._pairs = model, step, pairs
        self._learning_rate = _tf_variable(getattr(model.optimizer, "learning_rate", None))
        self._known_rate: Any = None
        self._has_begun = False  # an epoch, whose first step is yet to come
        self._has_run = False  # a step, which the model's variables don't know of

    def callback(self) -> Any:
        """What tells of an epoch's begin."""
        package = next(
            root
            for base in type(self._model).__mro__
            if (root := base.__module__.partition(".")[0]) in ("keras", "tf_keras")
        )
        callbacks = importlib.import_module(f"{package}.callbacks")
        return callbacks.LambdaCallback(on_epoch_begin=self._begin)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the model trains by the placed step."""
        own, metrics = self._model.train_function, self._model.get_metrics_result
        self._model.train_function = self._run

        def metrics_of_the_steps() -> Any:
            self._to_model()
            return metrics()

        self._model.get_metrics_result = metrics_of_the_steps
        try:
            yield
        finally:
            self._to_model()
            del self._model.get_metrics_result
            self._model.train_function = own
            self._to_placed()  # a callback may have changed the weights when all was done

    def _run(self, iterator: Any) -> Any:
        """As Keras' own: one execution, which may be several steps."""
        logs: Any = None
        for _ in range(_steps_per_execution(self._model)):
            try:
                batch = next(iterator)
            except StopIteration:
                break
            self._prepare()
            logs = self._step(*(batch if isinstance(batch, tuple) else (batch,)))
            self._has_run = True
            counter = getattr(self._model, "_train_counter", None)  # tf_keras' own
            if counter is not None:
                counter.assign_add(1)
        if logs is None:
            raise StopIteration
        return logs

    def _prepare(self) -> None:
        if self._has_begun:
            self._to_placed()
            self._has_begun = False
        elif self._rate() != self._known_rate:  # a callback may set it at any step
            original, placed = self._pairs[id(self._learning_rate)]
            placed.assign(original)
        self._known_rate = self._rate()

    def _rate(self) -> Any:
        known = id(self._learning_rate) in self._pairs
        return self._learning_rate.numpy() if known else None

    def _begin(self, *_: Any) -> None:
        self._has_begun = True

    def _to_placed(self) -> None:
        for original, placed in list(self._pairs.values()):
            placed.assign(original)

    def _to_model(self) -> None:
        """Not while a step is traced, which asks for the metrics, too."""
        if self._has_run and tf.executing_eagerly():
            for original, placed in list(self._pairs.values()):
                original.assign(placed)
            self._has_run = False


def _require_the_same(model: Any, pairs: Pairs) -> None:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    counter = _tf_variable(getattr(optimizer, "_iterations", None))
    if counter is None:  # with accumulated gradients `iterations` is computed of it
        counter = _tf_variable(optimizer.iterations)
    weights = [_tf_variable(weight) for weight in model.trainable_variables]
    if id(counter) not in pairs or not all(id(weight) in pairs for weight in weights):
        raise UsageError(
            "fitting a model with a placed step: its optimizer or weights are not those that the "
            "step was placed with; it was compiled, built or unfrozen since: place it again"
        )


def _tf_variable(variable: Any) -> Any:
    """TensorFlow's own variable of a Keras 3 one."""
    return variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)


def _steps_per_execution(model: Any) -> int:
    steps = getattr(model, "steps_per_execution", None)
    return 1 if steps is None else int(steps.numpy() if isinstance(steps, tf.Variable) else steps)
