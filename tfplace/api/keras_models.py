"""Compiled Keras models: their training step, and `model.fit` with a placed one."""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import KerasModel, KerasObject, Structure, TfVariable
from tfplace.api.example_call import Call, open_batch


def is_keras_model(step: object) -> bool:
    """Whether it is a model whose training step is meant."""
    return bool(keras_package(step)) and hasattr(step, "train_step")


def keras_package(model: object) -> str:
    """The package that a model is of: "keras", "tf_keras", or "" where it is of neither."""
    roots = (base.__module__.partition(".")[0] for base in type(model).__mro__)
    return next((root for root in roots if root in ("keras", "tf_keras")), "")


def keras_step(model: KerasModel, example_args: Structure) -> Callable[..., Structure]:
    """The training step of a compiled Keras model, its metrics at their start.

    It is not run: what its variables hold is what the training begins with, also those that are
    neither weights nor the optimizer's, such as an RNN's states. Weights, metrics and slots that it
    makes when it is called for the first time are made when it is traced, as in model.fit.

    Args:
      model: tf_keras or Keras 3.
      example_args: (x, y) or (x, y, sample_weight), or {name: value} of these.

    Raises:
      UsageError: it is not compiled, or to run eagerly, or made for replicas, or there is no
        example.
    """
    if getattr(model, "optimizer", None) is None:
        raise UsageError("placing a Keras model: it is not compiled; call model.compile first")
    if model.run_eagerly:
        raise UsageError(
            "placing a Keras model: it is compiled to run eagerly, and Python that runs at every "
            "step is in no graph; call model.compile without run_eagerly"
        )
    _require_no_replicas(model)

    def train_step(x: Structure, y: Structure = None, sample_weight: Structure = None) -> Structure:
        return model.train_step(_packed(x, y, sample_weight))

    if isinstance(example_args, Mapping | tuple) and not example_args:
        raise UsageError("placing a Keras model: wanted example_args=(x, y)")
    reset_metrics(model)
    return train_step


def openings(model: KerasModel) -> Sequence[Callable[[Call], Call]]:
    """What a step may be traced for beyond its example's shapes.

    Any length that the model's inputs and outputs leave open and any batch, or any batch alone,
    as in model.fit; nothing where an input says how many entries a batch has.
    """
    inputs, outputs = (getattr(model, name, None) or () for name in ("inputs", "outputs"))
    of_inputs, of_outputs = ([tf.TensorShape(t.shape) for t in ts] for ts in (inputs, outputs))
    if any(shape.rank and shape[0] is not None for shape in of_inputs):
        return ()

    def open_lengths(call: Call) -> Call:
        (x, *others), keywords = open_batch(call).structure
        x = _open_as(of_inputs, [each.name for each in inputs], x)
        names = getattr(model, "output_names", ())
        return Call((x, *(_open_as(of_outputs, names, each) for each in others)), keywords)

    return open_lengths, open_batch


def _open_as(shapes: Sequence[tf.TensorShape], names: Sequence[str], specs: Structure) -> Structure:
    """Specs, open where these shapes of the model are, by their names or in their order."""
    if isinstance(specs, Mapping):
        keys = names if set(names) == set(specs) else sorted(specs)
        return dict(zip(keys, _open_as(shapes, (), tuple(specs[key] for key in keys)), strict=True))
    if isinstance(specs, tuple) and len(specs) == len(shapes):
        return tuple(_open_as([one], (), spec) for one, spec in zip(shapes, specs, strict=True))
    if len(shapes) != 1 or not isinstance(specs, tf.TensorSpec):
        return specs
    rank, known = specs.shape.rank, shapes[0]
    if known.rank is None or rank > known.rank:
        return specs
    axes = zip(specs.shape, known[:rank], strict=True)
    sizes = [None if is_open is None else size for size, is_open in axes]
    return tf.TensorSpec(sizes, specs.dtype)


def as_keras_data(arguments: Structure) -> Structure:
    """Arguments as model.fit gives them to a step: its lists are tuples."""
    if isinstance(arguments, list | tuple) and not hasattr(arguments, "_fields"):
        return tuple(as_keras_data(each) for each in arguments)
    if isinstance(arguments, Mapping):
        return {name: as_keras_data(each) for name, each in arguments.items()}
    return arguments


def keras_example(model: KerasModel, arguments: Structure) -> Structure:
    """An example's arguments as model.fit gives them to a step: its arrays' floats are floatx."""
    floatx = importlib.import_module(f"{keras_package(model)}.backend").floatx()

    def cast(leaf: Structure) -> Structure:
        is_float = isinstance(leaf, np.ndarray) and tf.as_dtype(leaf.dtype).is_floating
        return tf.cast(leaf, floatx) if is_float else leaf

    return tf.nest.map_structure(cast, as_keras_data(arguments))


def reset_metrics(model: KerasModel) -> list[TfVariable]:
    """Sets the metrics of a model to their start; returns their variables as TensorFlow's."""
    variables = []
    for metric in model.metrics:
        metric.reset_state()
        variables += metric.variables
    return [v if isinstance(v, tf.Variable) else v.value for v in variables]


def _require_no_replicas(model: KerasModel) -> None:
    with model.distribute_strategy.scope():
        variable = tf.Variable(0.0)
    if isinstance(variable, tf.distribute.DistributedValues):
        raise UsageError(
            "placing a Keras model: it was made in the scope of a "
            f"{type(model.distribute_strategy).__name__}, which keeps a replica of each variable "
            "on each of its devices; wanted variables that can be placed: make it outside, and "
            "tfplace spreads its step itself"
        )


def _packed(x: Structure, y: Structure, sample_weight: Structure) -> Structure:
    """As Keras packs them: inputs without targets are no tuple of one."""
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, tuple) else x


# `model.fit` with a placed step: Keras' own loop, callbacks and validation around it.

_FITTING = "fitting a model with a placed step"
_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
_COMPILED = {
    "keras": ("_compile_loss", "_compile_metrics"),
    "tf_keras": ("compiled_loss", "compiled_metrics"),
}
Pairs = Callable[[], Iterable[tuple[TfVariable, TfVariable]]]  # originals, placed ones


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
      arguments, keywords: of model.fit.

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
        steps = getattr(self._model, "steps_per_execution", 1)
        for _ in range(int(steps.numpy() if isinstance(steps, tf.Variable) else steps or 1)):
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
        """Before an epoch; UsageError: the placed step wouldn't run in it."""
        if self._model.train_function != self._run:
            raise UsageError(
                f"{_FITTING}: the model has made another train function, so that it would train "
                "without the placed step; wanted Keras' own make_train_function: call the step in "
                "a loop of your own instead"
            )
        self._has_begun = True

    def _to_placed(self) -> None:
        for original, placed in self._pairs():
            placed.assign(original)

    def _to_model(self) -> None:
        """Not while a step is traced, which asks for the metrics, too."""
        if self._has_run and tf.executing_eagerly():
            for original, placed in self._pairs():
                original.assign(placed)
            self._has_run = False


def _without_optional(leaf: Structure) -> Structure:
    """Keras 3 has what is None in a generator's elements as an Optional."""
    return None if isinstance(leaf, tf.experimental.Optional) else leaf
