"""Exports Keras files to SavedModels, which is what the rest of tfplace reads."""

import contextlib
import dataclasses
import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable
from types import ModuleType

from graphs.errors import ModelError
from graphs.host.scratch import temporary_directory
from graphs.loading.keras_contents import (
    TOO_MANY_WEIGHTS,
    UnsafeError,
    limited_weights,
    member_text,
    parsed,
    require_harmless,
    require_own_weights,
)
from graphs.loading.keras_training import NotTrainableError, compiled, export_with_step
from graphs.loading.sniff import ModelFile
from graphs.protos import Json, KerasModel

_WRITTEN_BY_TF_KERAS = "2."
_NOT_TRAINED = (
    "it was compiled, but its own training step can't be made: {}; save a signature train_step to "
    "train"
)
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, OSError, RuntimeError, zlib.error,
            zipfile.BadZipFile, NotImplementedError)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Exported:
    """Attributes: a SavedModel that lives as long as this process; sentences on how it trains."""

    directory: str
    notes: tuple[str, ...] = ()


def export_keras(file: ModelFile) -> Exported:
    """Exports a Keras model to a SavedModel, a compiled one with its own training step.

    Raises:
      ModelError: the file is damaged, holds weights only, code, or classes that are not here.
    """
    notes: tuple[str, ...] = ()
    try:
        config = _read_config(file)
        require_harmless(config["config"])
        try:
            require_harmless(config["training"])
        except UnsafeError as error:
            notes, config["training"] = (_NOT_TRAINED.format(error),), None
    except UnsafeError as error:
        raise ModelError(
            f"reading model {file.path!r}: {error}; wanted nothing but Keras' own layers and the "
            "file's own weights; export the model to a SavedModel where it was made"
        ) from error
    directory = os.path.join(temporary_directory(), "exported")
    errors = []
    is_of_tf_keras = config["keras_version"].startswith(_WRITTEN_BY_TF_KERAS)
    # The one that wrote the file comes first.
    for loader in (_tf_keras, _keras) if is_of_tf_keras else (_keras, _tf_keras):
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Keras prints what it saved, and what it skipped
                return Exported(directory, notes + loader(file.path, directory, config["training"]))
        except Exception as error:  # what Keras raises depends on the layers in the file
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            errors.append(f"{loader.__name__.strip('_')}: {first_line[:300]}")
            if "safe_mode" in str(error) or TOO_MANY_WEIGHTS in str(error):  # for the other, too
                break
    raise ModelError(
        f"reading model {file.path!r}: Keras can't load it ({'; '.join(errors)}); if it has layers "
        "of your own, export it to a SavedModel with model.export() where they are defined"
    )


def _read_config(file: ModelFile) -> Json:
    """The configuration; Keras' version and how it was compiled under names of their own."""
    try:
        if file.kind == "keras_zip":
            with zipfile.ZipFile(file.path) as archive:
                config = parsed(member_text(archive, "config.json"))
                training = config.pop("compile_config", None)
                if is_versioned := "metadata.json" in archive.namelist():
                    metadata = parsed(member_text(archive, "metadata.json"))
                version = metadata.get("keras_version", "") if is_versioned else ""
                for name in archive.namelist():
                    if name.endswith(".h5"):
                        with archive.open(name) as weights:
                            require_own_weights(weights, os.path.getsize(file.path))
        else:
            require_own_weights(file.path, os.path.getsize(file.path))
            config, version, training = _read_hdf5_config(file.path)
    except _DAMAGED as error:
        raise ModelError(
            f"reading model {file.path!r}: the Keras file is damaged ({error}); save it again"
        ) from error
    return {"config": config, "keras_version": str(version), "training": training}


def _read_hdf5_config(path: str) -> tuple[Json, str, Json]:
    """The configuration of an HDF5 file, the Keras version, and how the model was compiled."""
    import h5py

    with h5py.File(path, "r") as archive:
        if "model_config" not in archive.attrs:
            raise ModelError(
                f"reading model {path!r}: found an HDF5 file without model_config, which holds "
                "weights only; wanted a whole model, save it with model.save()"
            )
        config = archive.attrs["model_config"]
        version = archive.attrs.get("keras_version", "")
        training = parsed(archive.attrs.get("training_config", "null"))
    if isinstance(version, bytes):
        version = version.decode("utf-8", "replace")
    return parsed(config), str(version), training


def _keras(path: str, directory: str, training: Json) -> tuple[str, ...]:
    # Keras 3 reads its backend once, when it is imported; only TensorFlow's has graphs. That is
    # taken back, since a child with other variables can't be forked (graphs.host.fork_server).
    is_set = "KERAS_BACKEND" in os.environ
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    if not is_set:
        del os.environ["KERAS_BACKEND"]

    if keras.backend.backend() != "tensorflow":
        raise ValueError("KERAS_BACKEND is not tensorflow; set it so")

    return _export(keras, keras.saving.load_model, path, directory, training, verbose=False)


def _tf_keras(path: str, directory: str, training: Json) -> tuple[str, ...]:
    import tf_keras

    return _export(tf_keras, tf_keras.models.load_model, path, directory, training)


def _export(
    framework: ModuleType,
    load_model: Callable[..., KerasModel],
    path: str,
    directory: str,
    training: Json,
    **options: bool,
) -> tuple[str, ...]:
    def load(compiled: bool) -> KerasModel:
        with limited_weights(framework, os.path.getsize(path)):
            return load_model(_named(path), compile=compiled, safe_mode=True)

    notes = _trained(load, framework, training, directory) if training else ()
    if not os.path.isdir(directory):
        load(False).export(directory, **options)
    return notes


def _trained(
    load: Callable[[bool], KerasModel], framework: ModuleType, training: Json, directory: str
) -> tuple[str, ...]:
    """Exports a compiled model with its step, or nothing; a sentence on either."""
    try:
        try:
            model = load(True)
        except Exception:  # metrics of the user's own, or those that Keras 3 can't read from .h5
            model = compiled(load(False), framework, training)
        return (export_with_step(model, framework.export.ExportArchive(), directory),)
    except NotTrainableError as error:
        return (_NOT_TRAINED.format(error),)


def _named(path: str) -> str:
    """A path to the file whose ending fits its content, by which Keras tells its formats apart."""
    wanted = ".keras" if zipfile.is_zipfile(path) else ".h5"
    if path.endswith((wanted, ".hdf5") if wanted == ".h5" else wanted):
        return path
    linked = os.path.join(temporary_directory(), "model" + wanted)
    os.symlink(os.path.abspath(path), linked)
    return linked
