"""A tf.function or Keras model in, a callable that runs placed out, inside a training script.

On the way it becomes a SavedModel in a temporary folder, so that all of `optimize` applies:
tracing, search, verification. The folder is gone when `place` returns.
"""

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Unpack

import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import KerasModel, KerasObject, Structure, TfVariable
from tfplace.api import keras_models
from tfplace.api.example_call import bound, example_call
from tfplace.api.flags import OptimizeFlags
from tfplace.api.flat_step import TRAIN
from tfplace.api.placings import Placings
from tfplace.report.report import Report

_SET_HERE = ("output_dir", "overwrite", "emit", "signature", "mode", "fetch")


class PlacedStep:
    """What `place` returns: call it like the step that it was made of.

    It has variables of its own, on the devices that were chosen for them; `sync` writes their
    values back into the ones that the step was made with. A call with inputs of other shapes, or
    with None for others, places the step for them first, as it was placed and on the same
    variables, which takes seconds, once for each.

    Attributes:
      report: what the search found, as in report.best and report.verdict_sentence.
    """

    def __init__(
        self, function: Callable[..., Structure], placings: Placings, model: KerasModel = None
    ) -> None:
        self.report: Report = placings.report
        self._function, self._placings, self._model = function, placings, model
        self._made_of = () if model is None else keras_models.made_of(model)
        with tf.device("/device:CPU:0"):  # a variable, as a tf.function calls without this Python
            # Whether it has run steps that the originals don't know of.
            self._is_ahead = tf.Variable(False, trainable=False, name="is_ahead")

    def __call__(self, *args: Structure, **keywords: Structure) -> Structure:
        """Runs one step; returns what the original step returns.

        Raises:
          UsageError: the arguments are not like those that it was placed for, or it was made of a
            Keras model that has changed since.
        """
        is_keras = self._model is not None
        if is_keras:
            keras_models.require_the_same(self._model, self._made_of, "calling a placed step")
            args, keywords = keras_models.as_keras_data(args), keras_models.as_keras_data(keywords)
        call = bound(self._function, args, keywords, "calling a placed step")
        form = self._placings.form_of(call, casts=is_keras)
        fed = form.fed(call, casts=is_keras)
        if form.signature == TRAIN:
            self._is_ahead.assign(True)
        return self._placings.run(form, call, fed)

    def __repr__(self) -> str:
        first = self._placings.first
        shapes = ", ".join(str(tuple(shape)) for shape in first.shapes)
        return (
            f"<tfplace.PlacedStep {first.name}({shapes}), {len(self.variables)} variables, "
            f"{self.report.headline}>"
        )

    @property
    def originals(self) -> tuple[TfVariable, ...]:
        """The variables of the step that was given."""
        return tuple(original for original, _ in self._placings.placed_of.values())

    @property
    def variables(self) -> tuple[TfVariable, ...]:
        """The placed variables, in the order of `originals`; weights in pieces are put together."""
        self._placings.make_whole()
        return tuple(placed for _, placed in self._placings.placed_of.values())

    def sync(self) -> None:
        """Assigns the placed variables' values to the originals: before saving or evaluating."""
        for original, placed in self._pairs():
            original.assign(placed)
        self._is_ahead.assign(False)

    def _pairs(self) -> Iterable[tuple[TfVariable, TfVariable]]:
        return zip(self.originals, self.variables, strict=True)

    def fit(self, *args: object, **keywords: object) -> KerasObject:
        """`model.fit` of the Keras model that it was made of, with this step.

        Callbacks and validation see the model's variables as they are at an epoch's begin and end,
        and what they set there counts; so at every batch, where a callback has hooks of batches,
        which takes the time of copying all variables to and fro.

        Returns:
          What model.fit returns.

        Raises:
          UsageError: it was made of no Keras model, or that one has changed since, or it has not
            the values of the steps that were called.
        """
        doing = "fitting a model with a placed step"
        self._require_model(doing)
        keras_models.require_the_same(self._model, self._made_of, doing)
        if bool(self._is_ahead):
            raise UsageError(
                f"{doing}: the step was called since its variables and "
                "the model's were the same, and fitting begins with the model's; call sync first, "
                "and load other weights after that if you mean these"
            )
        try:
            return keras_models.fit(self._model, self, self._pairs, args, keywords)
        finally:
            self._is_ahead.assign(False)

    def reset_metrics(self) -> None:
        """Sets a Keras model's metrics to their start, here and in the model: after each epoch.

        Raises:
          UsageError: it was made of no Keras model.
        """
        self._require_model("resetting the metrics of a placed step")
        for variable in keras_models.reset_metrics(self._model):
            original, placed = self._placings.placed_of.get(id(variable), (None, None))
            if original is not None:
                placed.assign(original)

    def _require_model(self, doing: str) -> None:
        if self._model is None:
            raise UsageError(
                f"{doing}: it was made of a function; wanted a Keras model; call the step, and "
                "assign to its `variables`, instead"
            )


def place(
    step: Callable[..., Structure] | KerasModel,
    example_args: Sequence[Structure] | Mapping[str, Structure] = (),
    batch_sizes: Sequence[int] = (),
    **flags: Unpack[OptimizeFlags],
) -> PlacedStep:
    """Places a training or inference step of this process.

    >>> import tensorflow as tf
    >>> weight = tf.Variable(2.0)
    >>> @tf.function
    ... def step(x):
    ...     weight.assign_sub(0.25 * tf.reduce_mean(x))
    ...     return weight * x
    >>> placed = place(step, [tf.ones(3)], cluster="k80x2", max_trials=5, budget_seconds=2.0)
    >>> placed(tf.ones(3)).numpy().tolist()
    [1.75, 1.75, 1.75]
    >>> placed.sync()
    >>> float(weight)
    1.75

    Args:
      step: a tf.function, any function that tf.function can trace, or a compiled Keras model,
        whose training step is meant.
      example_args: arguments of one call, in their order or as {name: value}: tensors, arrays, and
        structures of them; may be left out where a tf.function has an input signature. Other
        values are baked in. For a Keras model (x, y) or (x, y, sample_weight).
      batch_sizes: other sizes of a batch to place it for at once, not when they come.
      **flags: those of `tfplace optimize`; `cluster` may be a Cluster.

    Raises:
      UsageError: an argument that can't be used.
      TfplaceError: as `optimize`.
    """
    for name in _SET_HERE:
        if name in flags:
            raise UsageError(
                f"placing a step: {name} is set by the step itself; leave it out, or use "
                "tfplace.optimize on a model's path"
            )
    if keras_models.is_keras_model(step):
        example_args = keras_models.keras_example(step, example_args)
        function = keras_models.keras_step(step, example_args)
        model = step
    elif callable(step):
        function, model = step, None
    else:
        raise UsageError(
            f"placing a step: found a {type(step).__name__}; wanted a tf.function, a function, or "
            "a compiled Keras model"
        )
    has_example = not (isinstance(example_args, tuple | list) and not example_args)
    says_all = getattr(function, "input_signature", None) is not None
    call = example_call(function, example_args) if has_example or not says_all else None
    if not isinstance(batch_sizes, Sequence) or not all(
        isinstance(size, numbers.Integral) for size in batch_sizes
    ):
        raise UsageError(
            f"placing a step: found batch_sizes={batch_sizes!r}; wanted a list of whole numbers, "
            "such as (32, 7)"
        )
    traced = function if hasattr(function, "get_concrete_function") else tf.function(function)
    placings = Placings(traced, call, flags, () if model is None else keras_models.openings(model))
    if call is not None:
        for size in batch_sizes:
            other = call.of_size(size)
            placings.of(placings.first, other, placings.first.fed(other))
    return PlacedStep(function, placings, model)
