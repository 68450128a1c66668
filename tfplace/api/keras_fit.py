"""`model.fit` with a placed step: Keras' own loop, callbacks and validation around it."""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import KerasModel, KerasObject, Structure, TfVariable
from tfplace.api.keras_step import keras_package

Pairs = Mapping[int, tuple[TfVariable, TfVariable]]
_FITTING = "fitting a model with a placed step"
_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
_COMPILED = {
    "keras": ("_compile_loss", "_compile_metrics"),
    "tf_keras": ("compiled_loss", "compiled_metrics"),
}


def fit(
    model: KerasModel,
    step: Callable[..., Structure],
    pairs: Pairs,
    arguments: Sequence[object],
    keywords: Mapping[str, object],
) -> KerasObject:
    """Calls model.fit, whose steps are the placed ones.

    The values of the model's variables go to the placed ones when an epoch begins, and back as
    soon as Keras asks for its metrics, which it does before anything else at an epoch's end. Where
    a callback has hooks of batches they go to and fro at every execution, as these may read and
    set any of them.

    Args:
      model: tf_keras or Keras 3.
      step: the placed step.
      pairs: {id of an original variable: (the original, the placed one)}, growing.
      arguments, keywords: of model.fit.

    Returns:
      What model.fit returns.

    Raises:
      UsageError: model.fit doesn't take such arguments, or would train without the placed step.
    """
    try:
        bound = inspect.signature(model.fit).bind(*arguments, **keywords)
    except TypeError as error:
        raise UsageError(f"{_FITTING}: {error}; wanted the arguments of model.fit") from None
    given = _callbacks(bound.arguments.get("callbacks"))
    training = _Training(model, step, pairs, any(map(_has_batch_hooks, given)))
    bound.arguments["callbacks"] = [*given, training.callback()]
    with training.in_place():
        history = model.fit(*bound.args, **bound.kwargs)
    if not training.has_trained and getattr(history, "epoch", True):
        raise UsageError(
            f"{_FITTING}: model.fit, which is not Keras' own, has returned without a step of the "
            "placed step; wanted one that calls Keras' own: call the step in a loop of your own"
        )
    return history


def made_of(model: KerasModel) -> Sequence[object]:
    """What a model's training step is made of: compiling, unfreezing and the like change it."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    parts = [model.optimizer, optimizer, getattr(optimizer, "_learning_rate", None)]
    compiled = [getattr(model, name) for name in _COMPILED[keras_package(model)]]
    return [*parts, *compiled, *model.trainable_weights]


def require_the_same(model: KerasModel, known: Sequence[object], doing: str) -> None:
    """Raises a UsageError if the model is made of other things than those that are known."""
    found = made_of(model)
    if len(found) != len(known) or any(a is not b for a, b in zip(found, known, strict=True)):
        raise UsageError(
            f"{doing}: its model's optimizer, learning rate schedule, loss, metrics or trainable "
            "weights are not those that it was placed with; the model was compiled, built, frozen "
            "or unfrozen since: place it again"
        )


def _callbacks(given: KerasObject) -> list[KerasObject]:
    if isinstance(given, list | tuple):
        return [each for part in given for each in _callbacks(part)]
    if hasattr(given, "callbacks"):  # Keras' own CallbackList
        return _callbacks(given.callbacks)
    return [] if given is None else [given]


def _has_batch_hooks(callback: KerasObject) -> bool:
    """Whether it may look at the model's variables, or set them, between two steps.

    Keras' own callbacks do so when they save every few batches.
    """
    if getattr(callback, "save_freq", "epoch") != "epoch":
        return True
    hooks = [getattr(callback, name, None) for name in _HOOKS]
    return any(not _is_of_keras(hook) for hook in hooks if hook is not None)


def _is_of_keras(method: object) -> bool:
    module = getattr(method, "__module__", None) or ""
    return module.partition(".")[0] in ("keras", "tf_keras")


class _Training:
    """One call of fit."""

    def __init__(
        self, model: KerasModel, step: Callable[..., Structure], pairs: Pairs, has_hooks: bool
    ) -> None:
        self._model, self._step, self._pairs = model, step, pairs
        self._has_hooks = has_hooks  # callbacks between two executions
        self._has_begun = True  # an epoch, or all of it, whose first step is yet to come
        self.has_trained = False
        self._has_run = False  # a step, which the model's variables don't know of

    def callback(self) -> KerasObject:
        """What tells of an epoch's begin."""
        callbacks = importlib.import_module(f"{keras_package(self._model)}.callbacks")
        return callbacks.LambdaCallback(on_epoch_begin=self._begin)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the model trains by the placed step."""
        own, metrics = self._model.train_function, self._model.get_metrics_result
        self._model.train_function = self._run

        def metrics_of_the_steps() -> Structure:
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

    def _run(self, iterator: Iterator[Structure]) -> Structure:
        """As Keras' own: one execution, which may be several steps."""
        logs: Structure = None
        for _ in range(_steps_per_execution(self._model)):
            try:
                batch = tf.nest.map_structure(_without_optional, next(iterator))
            except StopIteration:
                break
            if self._has_begun or (self._has_hooks and logs is None):
                self._to_placed()
                self._has_begun = False
            logs = self._step(*self._arguments(batch))
            self.has_trained = self._has_run = True
            counter = getattr(self._model, "_train_counter", None)  # tf_keras' own
            if counter is not None:
                counter.assign_add(1)
        if logs is None:
            raise StopIteration
        if self._has_hooks:
            self._to_model()
        return logs

    def _arguments(self, batch: Structure) -> Structure:
        """A batch as the step's arguments, of which inputs alone are no tuple of one.

        Raises:
          UsageError: the model's own train_step would get other data than by model.fit.
        """
        if not isinstance(batch, tuple):
            return (batch,)
        is_single = len(batch) == 1 and not isinstance(batch[0], tuple)
        if is_single and not _is_of_keras(self._model.train_step):
            raise UsageError(
                f"{_FITTING}: found a tuple of one, (x,), as a batch of a model with a train_step "
                "of its own, which a placed step gives x; wanted batches x, or (x, y): map the "
                "data set, and take x in train_step"
            )
        return batch

    def _begin(self, *_: object) -> None:
        """Before an epoch.

        Raises:
          UsageError: the placed step wouldn't run in it.
        """
        if self._model.train_function != self._run:
            raise UsageError(
                f"{_FITTING}: the model has made another train function, so that it would train "
                "without the placed step; wanted Keras' own make_train_function: call the step in "
                "a loop of your own instead"
            )
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


def _without_optional(leaf: Structure) -> Structure:
    """Keras 3 has what is None in a generator's elements as an Optional."""
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def _steps_per_execution(model: KerasModel) -> int:
    steps = getattr(model, "steps_per_execution", None)
    return 1 if steps is None else int(steps.numpy() if isinstance(steps, tf.Variable) else steps)
