"""The training step of a compiled Keras model: its own loss and optimizer, as a signature.

Works alike for Keras 3 and tf_keras, whose names are the same here.
"""

import shutil
from collections.abc import Callable, Sequence
from types import ModuleType

import graphs.late_tensorflow as tf
from graphs.protos import DType, Json, KerasModel, KerasObject, Tensor, TensorShape, TfVariable

SERVE, TRAIN = "serve", "train_step"


class NotTrainableError(Exception):
    """No step can be made of what the file says; the message says why."""


def compiled(model: KerasModel, framework: ModuleType, training: Json) -> KerasModel:
    """The model, compiled with the loss and the optimizer that its file names, without metrics.

    Raises:
      NotTrainableError: they are the user's own.
    """
    try:
        named = training.get("optimizer_config") or training["optimizer"]
        optimizer = framework.optimizers.deserialize(named)
        model.compile(optimizer, _loss_of_config(framework, training.get("loss")))
    except Exception as error:  # what Keras raises depends on the class that it lacks
        raise NotTrainableError(str(error).strip().splitlines()[0][:200]) from error
    return model


def _loss_of_config(framework: ModuleType, config: Json) -> KerasObject:
    """Names stay names; what was serialised is made again, also in lists and {output: loss}."""
    if isinstance(config, dict) and "class_name" in config:
        return framework.losses.deserialize(config)
    if isinstance(config, dict):
        return {name: _loss_of_config(framework, each) for name, each in config.items()}
    if isinstance(config, list):
        return [_loss_of_config(framework, each) for each in config]
    return config


def export_with_step(model: KerasModel, export_archive: KerasObject, directory: str) -> str:
    """Exports a model as model.export does, with a signature `train_step` beside.

    Args:
      model: compiled.
      export_archive: an empty ExportArchive of the model's Keras.
      directory: where the SavedModel goes.

    Returns:
      A sentence that names loss and optimizer.

    Raises:
      NotTrainableError: inputs, targets or loss are of a kind that isn't known here.
    """
    try:
        inputs, targets = _input_specs(model), _target_specs(model)
        step = _train_step(model, len(inputs))
        _begin(model, inputs, targets)
        export_archive.track(model)
        if not hasattr(model.optimizer, "build"):  # its slots are used by handle, which isn't found
            export_archive.add_variable_collection("slots", model.optimizer.weights)
        served = _packed(model, "inputs", inputs)
        export_archive.add_endpoint(SERVE, model.__call__, input_signature=[served])
        export_archive.add_endpoint(TRAIN, step, input_signature=[*inputs, *targets])
        _write(export_archive, directory)
    except Exception as error:  # what Keras raises depends on layers and loss
        shutil.rmtree(directory, ignore_errors=True)
        raise NotTrainableError(str(error).strip().splitlines()[0][:200]) from error
    losses = ", ".join(dict.fromkeys(_name(loss) for loss in _losses(model)))
    optimizer = type(model.optimizer).__name__
    return f"its training step is the compiled model's own: loss {losses}, optimizer {optimizer}"


def _write(export_archive: KerasObject, directory: str) -> None:
    """Writes the archive; where Keras lets it, each endpoint is traced once.

    Keras 3 asks each endpoint for its variables first. TensorFlow keeps functions that are traced
    while it saves apart from others, so that such a step would be traced again, and once more to
    print what was written: half of the time that reading a large model takes.
    """
    from tensorflow.python.saved_model import save_context

    if not hasattr(export_archive, "_tf_trackable"):  # tf_keras
        export_archive.write_out(directory)
        return
    find_variables = export_archive._filter_and_track_resources

    def find_variables_as_saved() -> None:
        with save_context.save_context(tf.saved_model.SaveOptions()):
            find_variables()

    export_archive._filter_and_track_resources = find_variables_as_saved
    export_archive.write_out(directory, verbose=False)


def _train_step(model: KerasModel, num_inputs: int) -> Callable[..., dict[str, Tensor]]:
    """One step of plain gradient descent with the model's loss, as model.fit makes it."""

    def train_step(*arrays: Tensor) -> dict[str, Tensor]:
        x = _packed(model, "inputs", arrays[:num_inputs])
        y = _packed(model, "outputs", arrays[num_inputs:])
        weights, optimizer = model.trainable_variables, model.optimizer
        with tf.GradientTape() as tape:
            scaled = loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
            if hasattr(optimizer, "scale_loss"):  # its apply_gradients divides by the scale
                scaled = optimizer.scale_loss(loss)
        if hasattr(optimizer, "minimize"):  # of tf_keras, which scales in here
            optimizer.minimize(loss, weights, tape=tape)
        else:
            optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
        return {"loss": loss}

    return train_step


def _begin(model: KerasModel, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Makes all variables, those of loss and optimizer too, before the step itself is traced.

    Those of the loss are made where it is traced: nothing is computed, however large the batch.
    """

    loss_of = tf.function(model.compute_loss, autograph=False)
    outputs = [_spec(each.shape, each.dtype, f"made_{i}") for i, each in enumerate(model.outputs)]
    sides = (("inputs", inputs), ("outputs", targets), ("outputs", outputs))
    loss_of.get_concrete_function(*(_packed(model, *side) for side in sides))
    model.reset_metrics()
    if not _is_of(model.optimizer, model.trainable_variables):
        # Keras 3 reads an .h5 file's optimizer for variables that it then replaces.
        model.optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    if hasattr(model.optimizer, "build"):
        model.optimizer.build(model.trainable_variables)
    else:  # of tf_keras.optimizers.legacy, as older .h5 files have them
        model.optimizer._create_all_weights(model.trainable_variables)


def _is_of(optimizer: KerasObject, variables: Sequence[TfVariable]) -> bool:
    """Whether an optimizer is built for these variables, or not yet for any."""
    known = getattr(optimizer, "_trainable_variables_indices", None)  # Keras 3 has it
    if known is None or not getattr(optimizer, "built", False):
        return True
    return all(optimizer._var_key(variable) in known for variable in variables)


def _input_specs(model: KerasModel) -> list[Tensor]:
    inputs = getattr(model, "inputs", None)
    if not isinstance(inputs, list) or not inputs:
        raise NotTrainableError("its inputs are not known")
    return [_spec(each.shape, each.dtype, each.name) for each in inputs]


def _target_specs(model: KerasModel) -> list[Tensor]:
    """What the loss compares with each output: whole numbers for a sparse loss."""
    specs = []
    for number, (output, loss) in enumerate(zip(model.outputs, _losses(model), strict=True)):
        name = "y" if len(model.outputs) == 1 else f"y_{number}"
        is_sparse = "sparse" in _name(loss).lower()
        shape = output.shape[:-1] if is_sparse else output.shape
        specs.append(_spec(shape, "int64" if is_sparse else output.dtype, name))
    return specs


def _losses(model: KerasModel) -> list[KerasObject]:
    """The loss of each output."""
    loss, outputs = model.loss, model.outputs
    names = getattr(model, "output_names", None) or [""] * len(outputs)  # a Sequential has none
    if isinstance(loss, dict):
        losses = [loss.get(name) for name in names]
    else:
        losses = list(loss) if isinstance(loss, list | tuple) else [loss] * len(names)
    if len(losses) != len(names) or any(each is None for each in losses):
        raise NotTrainableError("not each of its outputs has a loss")
    return losses


def _spec(shape: TensorShape, dtype: DType, name: str) -> Tensor:
    plain = name.partition(":")[0].replace("/", "_").replace(".", "_")
    return tf.TensorSpec(tuple(shape), getattr(dtype, "name", dtype), plain)


def _name(loss: KerasObject) -> str:
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__))


def _packed(model: KerasModel, side: str, arrays: Sequence[Tensor]) -> Tensor:
    """The model's "inputs" or "outputs" as it takes and gives them: one, a list, or by name."""
    structure = getattr(model, f"_{side}_struct", getattr(model, f"_nested_{side}", None))
    if isinstance(structure, dict):
        return tf.nest.pack_sequence_as(structure, arrays)
    return arrays[0] if len(arrays) == 1 else list(arrays)
