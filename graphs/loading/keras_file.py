"""Exports Keras files to SavedModels, which is what the rest of tfplace reads."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from typing import Any

from graphs.errors import ModelError
from graphs.loading.saved_model_file import temporary_directory
from graphs.loading.sniff import ModelFile

_WRITTEN_BY_TF_KERAS = "2."


def export_keras(file: ModelFile) -> str:
    """Exports a Keras model to a SavedModel directory that lives as long as this process.

    Raises:
      ModelError: the file is damaged, holds weights only, code, or classes that are not here.
    """
    config = _read_config(file)
    for layer in _code_layers(config):
        raise ModelError(
            f"reading model {file.path!r}: layer {layer!r} is a Lambda with Python code in it, "
            "which is not safe to run; replace it by a layer class or export a SavedModel"
        )
    directory = os.path.join(temporary_directory(), "exported")
    errors = []
    for loader in _loaders(config):
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # Keras prints what it saved
                loader(file.path, directory)
            return directory
        except Exception as error:  # what Keras raises depends on the layers in the file
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            errors.append(f"{loader.__name__.strip('_')}: {first_line[:300]}")
    raise ModelError(
        f"reading model {file.path!r}: Keras can't load it ({'; '.join(errors)}); if it has layers "
        "of your own, export it to a SavedModel with model.export() where they are defined"
    )


def _read_config(file: ModelFile) -> Any:
    """The model's configuration, with the Keras version under "keras_version"."""
    try:
        if file.kind == "keras_zip":
            with zipfile.ZipFile(file.path) as archive:
                config = json.loads(archive.read("config.json"))
                names = archive.namelist()
                version = (
                    json.loads(archive.read("metadata.json")).get("keras_version", "")
                    if "metadata.json" in names
                    else ""
                )
        else:
            config, version = _read_hdf5_config(file.path)
    except (ValueError, KeyError, OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ModelError(
            f"reading model {file.path!r}: the Keras file is damaged ({error}); save it again"
        ) from error
    return {"config": config, "keras_version": str(version)}


def _read_hdf5_config(path: str) -> tuple[Any, str]:
    """The model's configuration and the Keras version, of an HDF5 file."""
    import h5py

    with h5py.File(path, "r") as archive:
        if "model_config" not in archive.attrs:
            raise ModelError(
                f"reading model {path!r}: found an HDF5 file without model_config, which holds "
                "weights only; wanted a whole model, save it with model.save()"
            )
        config = archive.attrs["model_config"]
        version = archive.attrs.get("keras_version", "")
    if isinstance(version, bytes):
        version = version.decode("utf-8", "replace")
    return json.loads(config), str(version)


def _code_layers(config: Any) -> Iterator[str]:
    """The names of all Lambda layers in a configuration whose function is code in the file."""
    if isinstance(config, dict):
        inner = config.get("config")
        if config.get("class_name") == "Lambda" and isinstance(inner, dict):
            function = inner.get("function")
            by_name = isinstance(function, str) or (
                isinstance(function, dict) and function.get("class_name") == "function"
            )
            if inner.get("function_type", "function") == "lambda" or not by_name:
                yield str(inner.get("name", "?"))
        for value in config.values():
            yield from _code_layers(value)
    elif isinstance(config, list):
        for value in config:
            yield from _code_layers(value)


def _loaders(config: Any) -> list[Any]:
    """The exporters of Keras 3 and tf_keras; the one that wrote the file comes first."""
    if config["keras_version"].startswith(_WRITTEN_BY_TF_KERAS):
        return [_tf_keras, _keras]
    return [_keras, _tf_keras]


def _keras(path: str, directory: str) -> None:
    # Keras 3 reads its backend once, when it is imported; only TensorFlow's has graphs.
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ValueError("KERAS_BACKEND is not tensorflow; set it so")
    model = keras.saving.load_model(_named(path), compile=False, safe_mode=True)
    model.export(directory, verbose=False)


def _tf_keras(path: str, directory: str) -> None:
    import tf_keras

    model = tf_keras.models.load_model(_named(path), compile=False, safe_mode=True)
    model.export(directory)


def _named(path: str) -> str:
    """A path to the file whose ending fits its content, by which Keras tells its formats apart."""
    wanted = ".keras" if zipfile.is_zipfile(path) else ".h5"
    if path.endswith((wanted, ".hdf5") if wanted == ".h5" else wanted):
        return path
    linked = os.path.join(temporary_directory(), "model" + wanted)
    os.symlink(os.path.abspath(path), linked)
    return linked
