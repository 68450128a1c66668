"""A tf.function or Keras model in, a callable that runs placed out, inside a training script.

On the way it becomes a SavedModel in a temporary folder, so that all of `optimize` applies:
tracing, search, verification. The folder is gone when `place` returns.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from graphs.errors import ModelError, UsageError
from tfplace.api.commands import optimize
from tfplace.api.flags import OptimizeFlags
from tfplace.api.load import load
from tfplace.report.report import Report

TRAIN, INFER = "train_step", "serving_default"
_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
_SET_HERE = ("output_dir", "overwrite", "emit", "signature", "mode", "fetch", "feed")


class PlacedStep:
    """What `place` returns: call it like the step that it was made of.

    It has variables of its own, on the devices that were chosen for them; `sync` writes their
    values back into the ones that the step was made with.

    Attributes:
      report: what the search found, as in report.best and report.verdict_sentence.
      variables: the placed variables, in the order of `originals`.
      originals: the variables of the step that was given.
    """

    def __init__(self, report: Report, loaded: Any, flat: _FlatStep) -> None:
        self.report = report
        self.originals = tuple(flat.variables)
        self.variables = tuple(loaded.placed_variables)
        self._loaded = loaded
        self._signature = loaded.signatures[flat.signature]
        self._flat = flat

    def __call__(self, *args: Any) -> Any:
        """Runs one step; returns what the original step returns.

        Raises:
          UsageError: the arguments are not like those that it was placed for.
        """
        return self._flat.packed(self._signature(**self._flat.inputs(args)))

    def sync(self) -> None:
        """Assigns the placed variables' values to the originals: before saving or evaluating."""
        for original, placed in zip(self.originals, self.variables, strict=True):
            original.assign(placed)


def place(
    step: Any, example_args: Sequence[Any] = (), **flags: Unpack[OptimizeFlags]
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
      example_args: positional arguments of one call: tensors, arrays, and structures of them;
        may be left out where a tf.function has an input signature. Other values are baked in. For
        a Keras model (x, y) or (x, y, sample_weight).
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
    flat = _FlatStep(_traceable(step, example_args), example_args)
    with tempfile.TemporaryDirectory(prefix="tfplace.") as folder:
        given, placed = os.path.join(folder, flat.name), os.path.join(folder, "placed")
        flat.save(given)
        mode = "train" if flat.signature == TRAIN else "inference"
        chosen: OptimizeFlags = {
            **flags,
            "output_dir": placed,
            "signature": flat.signature,
            "mode": mode,
        }
        report = optimize(given, **chosen)
        return PlacedStep(report, load(placed), flat)


class _FlatStep:
    """A step as a SavedModel's signature: tensors by name in, tensors by name out.

    Attributes:
      name: the step's name.
      variables: the variables that it captures.
      signature: TRAIN if it updates variables, else INFER.
    """

    def __init__(self, function: Any, example_args: Sequence[Any]) -> None:
        self._concrete = function.get_concrete_function(*map(_as_tensors, example_args))
        (positional, keywords) = self._concrete.structured_input_signature
        if keywords:
            raise UsageError(
                f"placing a step: it takes keyword arguments ({', '.join(keywords)}); wanted "
                "positional ones only"
            )
        self.name = str(getattr(function, "__name__", "step"))
        self._args = positional if not example_args else tuple(map(_as_tensors, example_args))
        leaves = tf.nest.flatten(self._args)
        specs = tf.nest.flatten(positional)
        self._fed = [i for i, spec in enumerate(specs) if isinstance(spec, tf.TensorSpec)]
        self._leaves, self._specs = leaves, [specs[i] for i in self._fed]
        self._function = function
        known = {id(variable): variable for variable in self._concrete.variables}
        self.variables = list(known.values())
        self.signature = TRAIN if self._has_updates() else INFER

    def inputs(self, args: Sequence[Any]) -> Mapping[str, Any]:
        """{input name: tensor} of a call.

        Raises:
          UsageError: the arguments are not like those of the example.
        """
        try:
            tf.nest.assert_same_structure(self._args, tuple(args))
        except (ValueError, TypeError) as error:
            raise UsageError(
                "calling a placed step: the arguments have another structure than the example: "
                f"{str(error).splitlines()[0]}"
            ) from None
        leaves = tf.nest.flatten(tuple(args))
        for i, (leaf, example) in enumerate(zip(leaves, self._leaves, strict=True)):
            if i not in self._fed and leaf != example:
                raise UsageError(
                    f"calling a placed step: found {leaf!r} where the example had {example!r}, "
                    "which is baked in; place the step again for it"
                )
        return {
            f"input_{number}": tf.convert_to_tensor(leaves[i], spec.dtype)
            for number, (i, spec) in enumerate(zip(self._fed, self._specs, strict=True))
        }

    def packed(self, outputs: Mapping[str, Any]) -> Any:
        """A call's outputs in the structure that the step returns."""
        structure = self._concrete.structured_outputs
        leaves = tf.nest.flatten(structure)
        values = [outputs.get(f"output_{i}", leaf) for i, leaf in enumerate(leaves)]
        return tf.nest.pack_sequence_as(structure, values)

    def save(self, folder: str) -> None:
        """Writes the SavedModel.

        Raises:
          ModelError: something that the step uses can't be saved.
        """
        specs = [
            tf.TensorSpec(spec.shape, spec.dtype, f"input_{number}")
            for number, spec in enumerate(self._specs)
        ]

        @tf.function(input_signature=specs, autograph=False)
        def flat_step(*fed: Any) -> Mapping[str, Any]:
            leaves = list(self._leaves)
            for i, value in zip(self._fed, fed, strict=True):
                leaves[i] = value
            returned = self._function(*tf.nest.pack_sequence_as(self._args, leaves))
            outputs = {
                f"output_{i}": leaf
                for i, leaf in enumerate(tf.nest.flatten(returned))
                if tf.is_tensor(leaf)
            }
            return outputs or {"done": tf.constant(True)}

        module = tf.Module()
        module.placed_variables = self.variables
        try:
            tf.saved_model.save(module, folder, signatures={self.signature: flat_step})
        except (AssertionError, TypeError, ValueError) as error:
            raise ModelError(
                f"placing a step: it can't be saved: {str(error).splitlines()[0]}; wanted a step "
                "of tensors and variables"
            ) from None

    def _has_updates(self) -> bool:
        graph = self._concrete.graph.as_graph_def()
        bodies = [graph.node, *(function.node_def for function in graph.library.function)]
        return any(node.op.startswith(_UPDATES) for body in bodies for node in body)


def _traceable(step: Any, example_args: Sequence[Any]) -> Any:
    """The tf.function to place."""
    if hasattr(step, "train_step") and hasattr(step, "trainable_variables"):
        return tf.function(_keras_step(step, example_args))
    if hasattr(step, "get_concrete_function"):
        return step
    if not callable(step):
        raise UsageError(
            f"placing a step: found a {type(step).__name__}; wanted a tf.function, a function, or "
            "a compiled Keras model"
        )
    return tf.function(step)


def _keras_step(model: Any, example_args: Sequence[Any]) -> Callable[..., Any]:
    """The training step of a compiled Keras model, all of its variables made."""
    if getattr(model, "optimizer", None) is None:
        raise UsageError("placing a Keras model: it is not compiled; call model.compile first")
    if not example_args:
        raise UsageError("placing a Keras model: wanted example_args=(x, y)")
    model(tf.nest.map_structure(tf.convert_to_tensor, example_args[0]))  # builds the layers
    model.optimizer.build(model.trainable_variables)

    def train_step(*data: Any) -> Any:
        return model.train_step(data)

    # Metrics make their variables when they are used for the first time, which must not be while
    # the step is traced for good.
    kept = [(variable, variable.numpy()) for variable in _variables(model)]
    train_step(*map(_as_tensors, example_args))
    for variable, value in kept:
        variable.assign(value)
    for metric in model.metrics:
        metric.reset_state()
    return train_step


def _variables(model: Any) -> list[Any]:
    optimizer = model.optimizer.variables
    return [*model.variables, *(optimizer() if callable(optimizer) else optimizer)]


def _as_tensors(argument: Any) -> Any:
    """Arrays as tensors; numbers, strings and flags stay what they are."""
    return tf.nest.map_structure(
        lambda leaf: tf.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, argument
    )
