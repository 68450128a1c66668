"""What a Keras file asks its reader to do, looked at before anything is built of it.

A configuration names classes and functions by module and name, and Keras calls them while it reads:
those of any module, and those of its own and of TensorFlow's that read and write files.
"""

import builtins
import contextlib
import functools
import inspect
import json
import math
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from types import ModuleType
from typing import IO

from graphs.protos import FunctionDef, Json

_KERAS = re.compile(
    r"(tf_)?keras(\.|$)|tensorflow\.python\.(ops\.init_ops(_v2)?|ops\.ragged\.ragged_tensor|"
    r"framework\.(dtypes|sparse_tensor|tensor|tensor_shape|tensor_spec))$"
)
"""Modules of their classes that are only values, TensorFlow's initialisers and types among them."""
_OF_FUNCTIONS = re.compile(
    r"(tf_)?keras(\.src|\.api)*\."
    r"(activations|constraints|initializers|losses|metrics|ops|regularizers)\b"
)
_READ_OTHERS = {
    *("TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "DenseFeatures"),
    *("SequenceFeatures", "get", "deserialize"),
}
_NAMED_FILES = ("vocabulary", "vocabulary_file", "filepath", "file_path")
_OF_TENSORS = re.compile(
    r"(compat\.v[12]\.)?((__operators__|audio|bitwise|dtypes|image|linalg|math|nn|quantization|"
    r"ragged|random|sets|signal|sparse|strings)\.[\w.]*|\w*)$"
)
_ON_FILES = re.compile(r"file|py_func|numpy_func|load|save|restore|import|print|read|write", re.I)
_LEAST_BYTES, _MOST_TIMES, _BYTES_OF_NUMBER = 1 << 26, 10, 4
TOO_MANY_WEIGHTS = "its layers have many times more weights than its file holds"


class UnsafeError(Exception):
    """The message says what a file would do while it is read."""


def require_harmless(config: Json) -> None:
    """Raises UnsafeError where a configuration asks for what isn't Keras' own, or for other files.

    What this program has registered with Keras is its own affair.

    Args:
      config: of a model and its training; what json.loads makes.
    """
    for each in _dictionaries(config):
        if why := _named(each):
            raise UnsafeError(why)
        for key in _NAMED_FILES:
            if isinstance(each.get(key), str):
                raise UnsafeError(f"it reads {each[key]!r}, a file that isn't part of it")


def _dictionaries(config: Json) -> Iterator[dict[str, Json]]:
    waiting = [config]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _named(each: dict[str, Json]) -> str:
    """Why an object isn't made of what names it; "" where it may be."""
    kind, module, inner = each.get("class_name"), each.get("module"), each.get("config")
    if kind is None:
        return ""
    inner_dict = inner if isinstance(inner, dict) else {}
    name = inner if kind == "function" and isinstance(inner, str) else kind
    if kind == "Lambda":
        functions = [inner_dict.get(key) for key in ("function", "mask", "output_shape")]
        if not all(map(_is_plain_or_keras, functions)):
            named = str(inner_dict.get("name", "?"))
            return f"layer {named!r} is a Lambda with Python code in it, which is not safe to run"
    if kind == "__lambda__":
        return "it has a function with Python code in it, which is not safe to run"
    if kind == "TFOpLambda":
        function = str(inner_dict.get("function", ""))
        if not _OF_TENSORS.match(function) or _ON_FILES.search(function.rpartition(".")[2]):
            return f"it calls {function!r}, which is not safe to run"
    if _is_registered(each.get("registered_name")):
        return ""
    if module is not None and not _may_be_made(str(module), str(name)):
        return f"it asks for {name!r} of the module {module!r}, which is not safe to run"
    return f"it has a layer {name!r}, which reads other files" if str(name) in _READ_OTHERS else ""


def _is_registered(name: object) -> bool:
    """Whether this program has registered a class or function of its own, which Keras takes."""
    frameworks = [sys.modules[each] for each in ("keras", "tf_keras") if each in sys.modules]
    return isinstance(name, str) and any(
        framework.saving.get_registered_object(name) is not None for framework in frameworks
    )


def _may_be_made(module: str, name: str) -> bool:
    """Whether it is one of Keras' classes, or of its functions of tensors."""
    if module == "builtins":  # Keras says so of its own functions
        return not hasattr(builtins, name)
    is_function = not name[:1].isupper() and not name.startswith("__")
    return bool((_OF_FUNCTIONS if is_function else _KERAS).match(module))


def _is_plain_or_keras(function: FunctionDef) -> bool:
    """Whether a Lambda's function is none, a shape, or named as one of Keras' own."""
    if isinstance(function, dict):
        name = str(function.get("config"))
        is_named = function.get("class_name") == "function"
        return is_named and _may_be_made(str(function.get("module")), name)
    numbers = function if isinstance(function, list) else []
    return not function or (function == numbers and {int, type(None)} >= {*map(type, numbers)})


def member_text(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member of an archive, not much larger than its file; UnsafeError: it unpacks to more."""
    size = sum(each.file_size for each in archive.infolist())
    _require_size(size, os.path.getsize(str(archive.filename)))
    return archive.read(name)


def parsed(text: bytes | str) -> Json:
    """What json.loads makes of it; raises UnsafeError where it is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise UnsafeError("its configuration is nested too deep") from None


def require_own_weights(file: str | IO[bytes], num_bytes: int) -> None:
    """Raises UnsafeError where an HDF5 file's arrays lie in other files, or are much larger.

    Args:
      file: a path or an open binary file; what is no HDF5 file is left to Keras.
    """
    import h5py

    size, seen = 0, set()
    with contextlib.suppress(OSError), h5py.File(file, "r") as opened:
        waiting = [opened]
        while waiting:
            group = waiting.pop()
            for name in group:
                if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
                    raise UnsafeError(f"its array {name!r} is a link to another file")
                each = group.get(name)
                if each is None or (address := h5py.h5o.get_info(each.id).addr) in seen:
                    continue  # a link to nothing, or a second one
                seen.add(address)
                if isinstance(each, h5py.Group):
                    waiting.append(each)
                if isinstance(each, h5py.Dataset):
                    if each.external or each.is_virtual:
                        raise UnsafeError(f"its array {name!r} lies in another file")
                    size += each.nbytes
        _require_size(size, num_bytes)


@contextlib.contextmanager
def limited_weights(framework: ModuleType, num_bytes: int) -> Iterator[None]:
    """Within it, layers raise UnsafeError before they make more weights than a file can hold.

    Keras makes all weights of a model before it reads them, and a file holds all of them. So Keras
    has not written a short one with a Dense(10**10).

    Args:
      framework: Keras 3 or tf_keras.
    """
    left = _LEAST_BYTES + _MOST_TIMES * num_bytes
    layer, add_weight = framework.layers.Layer, framework.layers.Layer.add_weight
    signature = inspect.signature(add_weight)

    @functools.wraps(add_weight)
    def counted(*args: object, **keywords: object) -> object:
        nonlocal left
        shape = signature.bind(*args, **keywords).arguments.get("shape") or ()
        sizes = [size for size in tuple(shape) if isinstance(size, int)]
        left -= _BYTES_OF_NUMBER * math.prod(sizes)
        if left < 0:
            raise UnsafeError(TOO_MANY_WEIGHTS)
        return add_weight(*args, **keywords)

    layer.add_weight = counted
    try:
        yield
    finally:
        layer.add_weight = add_weight


def _require_size(size: int, num_bytes: int) -> None:
    if size > _LEAST_BYTES + _MOST_TIMES * num_bytes:
        raise UnsafeError(
            f"it unpacks to {size / 2**20:,.0f} MiB, of {num_bytes / 2**20:,.0f} MiB on disk"
        )
