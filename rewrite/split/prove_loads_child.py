"""Child process of `prove_loads`: loads a written model, and where that fails the given one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tensorflow as tf

from graphs.host.parent import Parent
from rewrite.split.prove_loads_messages import LoadedModels, LoadRequest

v1 = tf.compat.v1
_MESSAGE_LENGTH = 300


def main(argv: Sequence[str]) -> None:
    """Receives a LoadRequest; sends LoadedModels before it loads and at the end."""
    parent = Parent(argv)
    request: LoadRequest = parent.request
    parent.end_above(request.memory_bytes, lambda why: LoadedModels(ended=why))
    tf.config.set_soft_device_placement(True)
    parent.tell(LoadedModels(loads_written=True))
    parent.tell(loaded_models(request))


def loaded_models(request: LoadRequest) -> LoadedModels:
    """Loads them."""
    written = _why_not(request.directory, request.tags, request.signatures)
    written = written or _why_not_read(request)
    if not written:
        return LoadedModels()
    if request.given_directory:
        given = _why_not(request.given_directory, request.tags, request.given_signatures)
        return LoadedModels(written, given)
    return LoadedModels(written, _why_not_wrapped(request.given_graph))


def _why_not(directory: str, tags: Sequence[str], signatures: Sequence[str]) -> str:
    """Why a SavedModel doesn't load with its signatures; "" where it does."""
    try:
        loaded = tf.saved_model.load(directory, tags=list(tags))
    except Exception as error:  # whatever a user's model raises
        return _message(error)
    there = set(getattr(loaded, "signatures", ()))
    # It leaves out what stands for an initialisation or a training op.
    missing = [name for name in signatures if name not in there and not name.startswith("__")]
    return f"it has lost its signatures {', '.join(missing)}" if missing else ""


def _why_not_read(request: LoadRequest) -> str:
    """Why a variable that loading has left out can't be restored; "" where all can be."""
    if not request.not_restored:
        return ""
    try:
        reader = tf.train.load_checkpoint(f"{request.directory}/variables/variables")
        for key, (dtype, shape) in request.not_restored.items():
            value = reader.get_tensor(key)
            if (tf.as_dtype(value.dtype).as_datatype_enum, value.shape) != (dtype, tuple(shape)):
                return f"its files hold {key!r} as {value.dtype} {value.shape}"
    except Exception as error:  # damaged files fail in many ways
        return _message(error)
    return ""


def _why_not_wrapped(graph_def: bytes) -> str:
    """Why TensorFlow 2 can't import a graph as a function; "" where it can."""
    graph = v1.GraphDef.FromString(graph_def)
    try:
        v1.wrap_function(lambda: v1.import_graph_def(graph, name=""), [])
    except Exception as error:  # whatever a user's model raises
        return _message(error)
    return ""


def _message(error: Exception) -> str:
    said = " ".join(str(error).split())[:_MESSAGE_LENGTH]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1:])
