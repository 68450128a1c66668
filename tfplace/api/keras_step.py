"""The training step of a compiled Keras model."""

import importlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import KerasModel, Structure, TfVariable
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
        opened = _open_as(shapes, (), tuple(specs[key] for key in keys))
        return dict(zip(keys, opened, strict=True))
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
