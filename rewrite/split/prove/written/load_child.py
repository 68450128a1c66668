"""Child process of `prove_loads`: loads a written model, and where that fails the given one."""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from graphs.errors import one_line
from graphs.host.freed_memory import give_back
from graphs.host.parent import Parent
from graphs.loading.runnable_copy import runnable_copy
from rewrite.split.prove.written.loadable_model import Loadable, loadable
from rewrite.split.prove.written.prove_loads import LoadedModels, LoadRequest

v1 = tf.compat.v1


def main(parent: Parent) -> None:
    """Takes a LoadRequest; sends LoadedModels before it loads and at the end."""
    request: LoadRequest = parent.request
    tf.config.set_soft_device_placement(True)
    scratch = Path.cwd()  # the child's own, for what has to be written to load a model
    made = made_loadable(request, scratch)
    parent.tell(LoadedModels(loads_written=True, is_fewer=made.is_fewer))
    parent.tell(loaded_models(request, made, scratch))


def made_loadable(request: LoadRequest, scratch: Path) -> Loadable:
    """What is loaded of the written model."""
    made = loadable(Path(request.directory), request.tags, scratch, request.is_whole)
    give_back()
    return made


def loaded_models(request: LoadRequest, made: Loadable, scratch: Path) -> LoadedModels:
    """Loads them."""
    written = _why_not(made.directory, request.tags, made.signatures) or _why_not_read(made)
    if not written:
        return LoadedModels(is_fewer=made.is_fewer)
    if request.given_directory:
        directory = runnable_copy(request.given_directory, str(scratch))
        given = _why_not(directory, request.tags, request.given_signatures)
    else:
        given = _why_not_wrapped(request.given_graph)
    return LoadedModels(written, given, is_fewer=made.is_fewer)


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


def _why_not_read(made: Loadable) -> str:
    """Why a variable that loading has left out can't be restored; "" where all can be."""
    if not made.not_restored:
        return ""
    try:
        reader = tf.train.load_checkpoint(f"{made.directory}/variables/variables")
        for key, (dtype, shape) in made.not_restored.items():
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
    kind, said = type(error).__name__, one_line(error, 300)
    return kind if said == kind else f"{kind}: {said}"
