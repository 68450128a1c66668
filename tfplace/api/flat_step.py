"""A step as a SavedModel's signature: tensors by name in, tensors by name out."""

import contextlib
import gc
import inspect
import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable
from tensorflow.python.trackable.resource import CapturableResource

from graphs.errors import ModelError, UsageError
from graphs.function_library import bodies
from graphs.loading.variable_updates import is_assignment
from graphs.protos import Structure, Tensor, TfFunction
from tfplace.api.example_call import Call

TRAIN, INFER = "train_step", "serving_default"
_CALLING = "calling a placed step"

Shapes = tuple[tuple[int | None, ...] | None, ...]


class FlatStep:
    """A step, traced for arguments of certain shapes.

    Attributes:
      name: the step's name.
      specs: what it was traced for, where this is more than an example's shapes.
      variables: the variables that it captures.
      resources: the tables and summary writers that it captures.
      signature: TRAIN if it updates variables, else INFER.
      shapes: of its inputs; a dimension may be unknown.
    """

    def __init__(self, function: TfFunction, call: Call | None, specs: Call | None = None) -> None:
        """Traces it.

        Args:
          function: a tf.function.
          call: example arguments; None where its input signature says all.
          specs: what to trace it for, where this is more than the example's shapes.

        Raises:
          UsageError: an argument is no tensor and nothing that can be baked in.
        """
        self.specs = specs
        wanted = specs or call or Call()
        self._concrete = function.get_concrete_function(*wanted.positional, **wanted.keywords)
        traced = self._concrete.structured_input_signature
        self._structure = traced if call is None else call.structure
        _require_fed(tf.nest.flatten(traced))
        self._leaves = _parts(self._structure)
        self._parameters = list(inspect.signature(function).parameters)
        inputs = _parts(traced)
        self.name = str(getattr(function, "__name__", "step"))
        self._fed = [i for i, spec in enumerate(inputs) if isinstance(spec, tf.TensorSpec)]
        self._specs = [inputs[i] for i in self._fed]
        self.shapes = tuple(spec.shape for spec in self._specs)
        captured = _captured(self._concrete)
        self.variables = [each for each in captured if isinstance(each, tf.Variable)]
        self.resources = [each for each in captured if not isinstance(each, tf.Variable)]
        every = [node for _, nodes in bodies(self._concrete.graph.as_graph_def()) for node in nodes]
        self.signature = TRAIN if any(map(is_assignment, every)) else INFER

    def fed(self, call: Call, casts: bool = False) -> list[Tensor]:
        """The tensors of a call, of the example's dtypes, whatever their shapes.

        Args:
          casts: whether floats of other dtypes are cast, as Keras does itself, but not to fewer
            than 32 bits, where large ones would be infinite. A function might compute in their
            own dtype, which is another result.

        Raises:
          UsageError: the arguments are not like those of the example.
        """
        structure = _read(call.structure)
        reason = _difference(self._structure, structure)
        if reason:
            raise UsageError(
                f"{_CALLING}: the arguments have another structure than the example: {reason}; "
                "call it as in example_args"
            )
        leaves = _parts(structure)
        of_leaf = [key for key, value in _arguments(structure).items() for _ in _parts(value)]
        for i, (leaf, example) in enumerate(zip(leaves, self._leaves, strict=True)):
            if i not in self._fed and not _is_same(leaf, example):
                raise UsageError(
                    f"{_CALLING}: {self._name(of_leaf[i])}: found {_said(leaf)} where the example "
                    f"had {_said(example)}, which is baked in; place the step again for it, with "
                    f"example_args={self.arguments_of(call)}"
                )
        specs = zip(self._fed, self._specs, strict=True)
        return [_tensor(leaves[i], spec, casts) for i, spec in specs]

    def arrays(self, fed: Sequence[Tensor]) -> dict[str, np.ndarray]:
        """{argument of the signature that `save` writes: array} of a call's tensors."""
        return {
            f"input_{number}": np.asarray(tensor.numpy(), spec.dtype.as_numpy_dtype)
            for number, (tensor, spec) in enumerate(zip(fed, self._specs, strict=True))
        }

    @property
    def inputs_named(self) -> dict[str, str]:
        """{name of an argument of the step: that of the signature that `save` writes}."""
        return {str(spec.name): f"input_{number}" for number, spec in enumerate(self._specs)}

    def with_fed(self, call: Call, fed: Sequence[Tensor]) -> Call:
        """The call with the tensors that `fed` made of its arguments."""
        structure = _read(call.structure)
        leaves = _parts(structure)
        for i, tensor in zip(self._fed, fed, strict=True):
            leaves[i] = tensor
        return Call(*_of_parts(structure, leaves))

    def has_form(self, call: Call) -> bool:
        """Whether a call has None where the example has it, and nowhere else."""
        structure = _read(call.structure)
        is_same = not _difference(self._structure, structure)
        return is_same and _nones(self._leaves) == _nones(_parts(structure))

    def in_another_form(self, call: Call, casts: bool = False) -> tuple[Call, list[str]]:
        """A call that has None where the example has tensors, or tensors where it has None.

        Returns:
          The call, the arguments that are as in the example as `fed` makes them; and the names of
          the others, none where it is no such call.

        Raises:
          UsageError: other arguments are not like those of the example.
        """
        found, example = _arguments(_read(call.structure)), _arguments(self._structure)
        if found.keys() != example.keys():
            return call, []
        others = [key for key in found if _is_another_form(example[key], found[key])]
        if not others:
            return call, []
        alike = _call(found | {key: example[key] for key in others})
        alike = self.with_fed(alike, self.fed(alike, casts))
        changed = _call(_arguments(alike.structure) | {key: found[key] for key in others})
        return changed, [self._name(key) for key in others]

    def arguments_of(self, call: Call) -> str:
        """The example_args that would have a call's form, as they are written in Python."""
        arguments = _arguments(call.structure).items()
        texts = {self._name(key): "None" if v is None else self._name(key) for key, v in arguments}
        if call.keywords:
            return "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"
        return f"({', '.join(texts.values())}{',' * (len(texts) == 1)})"

    def _name(self, key: int | str) -> str:
        if isinstance(key, str):
            return key
        return self._parameters[key] if key < len(self._parameters) else f"argument {key}"

    def accepts(self, shapes: Shapes) -> bool:
        """Whether it was traced for inputs of these shapes, too.

        A dimension that is unknown, as within a tf.function, may be another than one that it was
        traced for.
        """
        return all(_covers(own, shape) for own, shape in zip(self.shapes, shapes, strict=True))

    def packed(self, outputs: Mapping[str, Tensor]) -> Structure:
        """A call's outputs in the structure that the step returns."""
        structure = self._concrete.structured_outputs
        values = [outputs.get(f"output_{i}", leaf) for i, leaf in enumerate(_parts(structure))]
        return _of_parts(structure, values)

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
        def flat_step(*fed: Tensor) -> Mapping[str, Tensor]:
            leaves = list(self._leaves)
            for i, value in zip(self._fed, fed, strict=True):
                leaves[i] = value
            positional, keywords = _of_parts(self._structure, leaves)
            # Not the function, which would be traced again, and draw other seeds than at first.
            returned = self._concrete(*positional, **keywords)
            outputs = {
                f"output_{i}": leaf for i, leaf in enumerate(_parts(returned)) if tf.is_tensor(leaf)
            }
            return outputs or {"done": tf.constant(True)}

        module = tf.Module()
        module.placed_variables = self.variables
        module.placed_resources = self.resources
        try:
            _save(module, folder, {self.signature: flat_step})
        except (AssertionError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            if "untracked" in reason:  # TensorFlow's words go on about the attributes of a module
                reason = "it uses a resource that is no variable, lookup table or summary writer"
            if "distributed variables" in str(error):
                reason = "it uses variables of a tf.distribute strategy, such as MirroredStrategy"
            raise ModelError(
                f"placing a step: it can't be saved: {reason}; wanted a step of tensors and "
                "variables"
            ) from None


def _save(module: tf.Module, folder: str, signatures: Mapping[str, TfFunction]) -> None:
    """Saves it, without custom gradients where one can't be traced, as those of tf.recompute_grad.

    What is asked for a gradient of such a step raises an error; its own are ops like others.
    """
    printed = io.StringIO()  # TensorFlow prints a traceback for what it then raises
    try:
        with contextlib.redirect_stderr(printed):
            tf.saved_model.save(module, folder, signatures=signatures)
    except ValueError as error:
        if "Error when tracing gradients" not in str(error):
            raise
        printed = io.StringIO()
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, folder, signatures=signatures, options=options)
    finally:
        sys.stderr.write(printed.getvalue())


class _Writer(CapturableResource):  # type: ignore[misc]
    """A summary writer that TensorFlow doesn't track; what is saved never writes."""

    def __init__(self, handle: Tensor) -> None:
        super().__init__()
        self._resource_handle = handle

    def _create_resource(self) -> Tensor:
        return tf.raw_ops.SummaryWriter(shared_name="", container="")


def _captured(concrete: TfFunction) -> list[Any]:
    """Variables, tables and summary writers that a function captures.

    TensorFlow lists the variables that are read; optimizers of TensorFlow 1's kind and lookup
    layers use theirs by handle. A handle doesn't know its owner, Python knows all objects.
    """
    known = {id(variable): variable for variable in concrete.variables}
    missing = {id(each) for each in concrete.captured_inputs if each.dtype == tf.resource}
    missing -= {id(variable.handle) for variable in known.values()}
    for each in gc.get_objects() if missing else ():
        kind = type(each)
        if issubclass(kind, BaseResourceVariable):
            handle = getattr(each, "_handle", None)
        elif issubclass(kind, CapturableResource):
            handle = getattr(each, "_resource_handle", None)
        elif issubclass(kind, tf.summary.SummaryWriter):
            handle = getattr(each, "_resource", None)
            each = None if handle is None else _Writer(handle)
        else:
            continue
        if id(handle) in missing:
            missing.remove(id(handle))
            known[id(each)] = each
    return list(known.values())


def _covers(traced: tf.TensorShape, shape: Sequence[int | None] | None) -> bool:
    if traced.rank is None:
        return True
    if shape is None or len(shape) != traced.rank:
        return False
    return all(known in (None, each) for known, each in zip(traced, shape, strict=True))


def shapes_of(tensors: Sequence[Tensor]) -> Shapes:
    """Their shapes; within a tf.function a dimension or a rank may be unknown."""
    shapes = [tensor.shape for tensor in tensors]
    return tuple(None if shape.rank is None else tuple(shape) for shape in shapes)


def _parts(structure: Structure) -> list[Structure]:
    """The leaves of a structure; of ragged and sparse tensors, their tensors."""
    return list(tf.nest.flatten(structure, expand_composites=True))


def _of_parts(structure: Structure, leaves: Sequence[Structure]) -> Structure:
    return tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)


def _difference(example: Structure, structure: Structure) -> str:
    """What TensorFlow says of two structures that differ; empty where they don't."""
    try:
        tf.nest.assert_same_structure(example, structure, expand_composites=True)
    except (ValueError, TypeError) as error:
        return str(error).splitlines()[0]
    return ""


def _nones(leaves: Sequence[Structure]) -> list[bool]:
    return [leaf is None for leaf in leaves]


def _arguments(structure: Structure) -> dict[int | str, Structure]:
    """{place or name: argument} of a call's structure, as tf.nest has them."""
    positional, keywords = structure
    return {**dict(enumerate(positional)), **dict(sorted(keywords.items()))}


def _call(arguments: Mapping[int | str, Structure]) -> Call:
    positional = tuple(value for key, value in arguments.items() if isinstance(key, int))
    return Call(positional, {key: v for key, v in arguments.items() if isinstance(key, str)})


def _is_another_form(example: Structure, found: Structure) -> bool:
    """Whether two arguments, of tensors alone, differ by what is None."""
    leaves, others = _parts(example), _parts(found)
    if not all(leaf is None or tf.is_tensor(leaf) for leaf in (*leaves, *others)):
        return False
    if example is None or found is None:
        return example is not found
    return not _difference(example, found) and _nones(leaves) != _nones(others)


def _read(structure: Structure) -> Structure:
    """The structure with the values of variables: they are composites, too."""
    return tf.nest.map_structure(
        lambda leaf: leaf.read_value() if isinstance(leaf, tf.Variable) else leaf, structure
    )


def _require_fed(specs: Sequence[tf.TypeSpec]) -> None:
    fed = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)
    for spec in specs:
        if isinstance(spec, tf.TypeSpec) and not isinstance(spec, fed):
            raise UsageError(
                f"placing a step: an argument is a {spec.value_type.__name__}; wanted tensors, "
                "arrays, and values to bake in: give its tensors and make it of them in the step "
                "(variables are captured, a data set's elements are given one by one)"
            )


def _said(leaf: Structure) -> str:
    return f"a tensor of shape {leaf.shape}" if tf.is_tensor(leaf) else repr(leaf)


def _is_same(leaf: Structure, example: Structure) -> bool:
    """Whether a value is the one that was baked in; 1, 1.0 and True are three values."""
    if leaf is example:
        return True
    return type(leaf) is type(example) and not tf.is_tensor(leaf) and bool(leaf == example)


def _tensor(value: Structure, spec: tf.TensorSpec, casts: bool) -> Tensor:
    """The value as a tensor of the dtype that the step was traced for.

    Raises:
      UsageError: it is of a dtype that can't become that one without loss of meaning.
    """
    try:
        if value is None:
            raise TypeError("it is left out, or None")
        if getattr(value, "dtype", None) is None:
            return tf.convert_to_tensor(value, spec.dtype)
        dtype = tf.as_dtype(value.dtype)
        if dtype == spec.dtype:
            return tf.convert_to_tensor(value)
        if casts and dtype.is_floating and spec.dtype in (tf.float32, tf.float64):
            return tf.cast(value, spec.dtype)
        raise TypeError(f"it is of dtype {dtype.name}")
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{_CALLING}: argument {spec.name!r} can't be fed: {str(error).splitlines()[0]}; "
            f"wanted a tensor of dtype {spec.dtype.name} as in the example; cast it, or place the "
            "step again"
        ) from None
