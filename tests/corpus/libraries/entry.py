"""The table of the libraries' models, and how a training step is saved."""

import dataclasses
import os
from collections.abc import Callable

LIBRARIES: dict[str, "LibraryModel"] = {}


@dataclasses.dataclass(frozen=True)
class LibraryModel:
    """A model of a library.

    Attributes:
      name: of the model.
      library: whose venv it is made in.
      build: saves its training step in a folder, in a process of that venv.
    """

    name: str
    library: str
    build: Callable[[str], None]


def model(library):
    """Puts the function that saves a model into the table, under the function's name."""

    def register(build):
        LIBRARIES[build.__name__] = LibraryModel(build.__name__, library, build)
        return build

    return register


def spec(*shape, dtype="float32"):
    import tensorflow as tf

    return tf.TensorSpec(shape, dtype)


def ids(*shape, dtype="int32"):
    return spec(*shape, dtype=dtype)


def fit(folder, keras_model, *batch, callbacks=()):
    """Saves the step that `fit` takes of a compiled model.

    Args:
      folder: to write to.
      keras_model: compiled.
      batch: specs of x, y and weights, as nested as `fit` would have them.
      callbacks: that `fit` needs.
    """
    import tensorflow as tf

    def as_given(values):  # a data set's batch without targets is no tuple of one
        return values if len(values) > 1 else values[0]

    # Makes whatever is made late.
    once = tf.data.Dataset.from_tensors(as_given(_sample(batch)))
    keras_model.fit(once, verbose=0, callbacks=list(callbacks))
    step(folder, lambda *values: keras_model.train_step(as_given(values)), *batch)


def step(folder, function, *arguments):
    """Saves a function that trains, with its arguments' specs."""
    import tensorflow as tf

    given = list(_leaves(arguments))
    names = [f"input_{i}" for i in range(len(given))]
    specs = [tf.TensorSpec(s.shape, s.dtype, name) for s, name in zip(given, names, strict=True)]

    def train_step(*values):
        result = function(*tf.nest.pack_sequence_as(arguments, list(values)))
        leaves = [tf.convert_to_tensor(each) for each in tf.nest.flatten(result)]
        return {f"result_{i}": leaf for i, leaf in enumerate(leaves)}

    function(*_sample(arguments))
    traced = tf.function(train_step, input_signature=specs)
    concrete = traced.get_concrete_function()
    module = tf.Module()
    module.held = list(concrete.graph.variables)
    module.train_step = traced
    tf.saved_model.save(module, os.path.join(folder, "model"), {"train_step": concrete})


def _leaves(specs):
    import tensorflow as tf

    return tf.nest.flatten(specs)


def _sample(specs, num_entries=2):
    """Zeros of these specs, with two entries where a size is open; ones where numbers are real."""
    import tensorflow as tf

    def sample(each):
        sizes = [num_entries if size is None else size for size in each.shape]
        return tf.ones(sizes, each.dtype) if each.dtype != tf.string else tf.fill(sizes, "1")

    return tf.nest.map_structure(sample, specs)
