"""The arguments of one call of a step: bound to its parameters, checked, cut to other sizes."""

import collections
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import Structure

_FORM = "a sequence with the arguments of one call, such as (x, y), or a mapping {name: value}"


@dataclasses.dataclass(frozen=True)
class Call:
    """One call's arguments.

    Attributes:
      positional: in their order, defaults filled in.
      keywords: {name: value} of those that can only be given by name.
    """

    positional: tuple[Structure, ...] = ()
    keywords: Mapping[str, Structure] = dataclasses.field(default_factory=dict)

    @property
    def structure(self) -> tuple[Structure, ...]:
        """Both, for tf.nest."""
        return (tuple(self.positional), dict(self.keywords))

    def of_size(self, size: int) -> "Call":
        """The same call with a batch of another size: its rows, repeated as often as needed.

        Raises:
          UsageError: no argument has a batch.
        """
        leaves = tf.nest.flatten(self.structure)
        leading = [int(np.shape(leaf)[0]) for leaf in leaves if _has_rows(leaf)]
        if size < 1 or not leading:
            raise UsageError(
                f"placing a step for a batch of {size}: wanted a size of at least 1, and an array "
                f"with a batch in example_args; found {len(leading)} of these"
            )
        batch = collections.Counter(leading).most_common(1)[0][0]
        cut = [
            tf.gather(leaf, np.arange(size) % batch)
            if _has_rows(leaf) and np.shape(leaf)[0] == batch
            else leaf
            for leaf in leaves
        ]
        return Call(*tf.nest.pack_sequence_as(self.structure, cut))


def open_batch(call: Call) -> Call:
    """What a call's tensors are, but for the size of its batch: the commonest first axis."""
    leading = [
        int(np.shape(leaf)[0]) for leaf in tf.nest.flatten(call.structure) if _has_rows(leaf)
    ]
    batch = collections.Counter(leading).most_common(1)[0][0] if leading else None

    def opened(leaf: Structure) -> Structure:
        spec = tf.type_spec_from_value(leaf) if tf.is_tensor(leaf) else leaf
        is_batch = _has_rows(leaf) and np.shape(leaf)[0] == batch
        return spec._unbatch()._batch(None) if is_batch else spec

    return Call(*tf.nest.map_structure(opened, call.structure))


def open_where_unlike(specs: Call, call: Call) -> Call:
    """What both are: specs, and a call's tensors, which may be of other shapes.

    As TensorFlow relaxes what a function was traced for.
    """

    def common(spec: Structure, leaf: Structure) -> Structure:
        if not isinstance(spec, tf.TypeSpec):
            return leaf
        found = tf.type_spec_from_value(leaf)
        return spec.most_specific_common_supertype([found]) or found

    return Call(*tf.nest.map_structure(common, specs.structure, call.structure))


def example_call(function: Callable[..., Structure], example_args: Structure) -> Call:
    """What `example_args` means for a function.

    Args:
      example_args: positional arguments, or {name: value}.

    Raises:
      UsageError: it is neither.
    """
    if isinstance(example_args, Mapping):
        return bound(function, (), example_args, "placing a step")
    if isinstance(example_args, tf.data.Dataset):
        raise UsageError(
            f"placing a step: example_args is a {type(example_args).__name__}; wanted {_FORM}: "
            "give one element, as in `example_args=next(iter(dataset))` where it is a tuple of the "
            "step's arguments, or `(next(iter(dataset)),)` where it is the one argument"
        )
    if not isinstance(example_args, Sequence) or isinstance(example_args, str | bytes):
        raise UsageError(
            f"placing a step: example_args is a single {type(example_args).__name__}; wanted "
            f"{_FORM}: give `(x,)` for a step of one argument"
        )
    return bound(function, tuple(example_args), {}, "placing a step")


def bound(
    function: Callable[..., Structure],
    args: Sequence[Structure],
    keywords: Mapping[str, Structure],
    doing: str,
) -> Call:
    """Arguments as the function would get them, defaults filled in, arrays as tensors.

    What is no tensor becomes one of the dtype that an input signature names, as in TensorFlow:
    there arrays, numbers and lists of them are converted, and tensors of other dtypes are not.

    Raises:
      UsageError: the function doesn't take them.
    """
    try:
        found = inspect.signature(function).bind(*args, **keywords)
    except TypeError as error:
        raise UsageError(
            f"{doing}: {error}; wanted arguments as in {inspect.signature(function)}"
        ) from None
    found.apply_defaults()
    signature = tuple(getattr(function, "input_signature", None) or ())
    given, others = found.args[: len(signature)], found.args[len(signature) :]
    try:
        converted = tf.__internal__.nest.map_structure_up_to(
            signature, _converted, signature, given, check_types=False
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{doing}: an argument is not as the input signature has it: "
            f"{str(error).splitlines()[0]}; wanted {signature}"
        ) from None
    as_tensors = tf.nest.map_structure(  # numbers, strings and flags stay what they are
        lambda leaf: tf.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf,
        ((*converted, *others), found.kwargs),
    )
    return Call(*as_tensors)


def _converted(spec: Structure, value: Structure) -> Structure:
    is_due = isinstance(spec, tf.TensorSpec) and not tf.is_tensor(value)
    return tf.convert_to_tensor(value, spec.dtype) if is_due else value


def _has_rows(leaf: Structure) -> bool:
    return tf.is_tensor(leaf) and len(leaf.shape) > 0
