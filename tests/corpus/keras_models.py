"""Models of tf-keras and Keras 3: files, exports, recurrent layers, applications."""

from __future__ import annotations

import tensorflow as tf

from tests.corpus.entry import model

_NO_EMPTY_BATCH = "empty batch)"
"""Keras 3's batch normalisation, as TensorFlow fuses it; a state of another batch size."""


def _tf_keras():
    import tf_keras

    tf_keras.utils.set_random_seed(1)
    return tf_keras


def _keras():
    import keras

    keras.utils.set_random_seed(1)
    return keras


def _exported(model_, folder):
    path = str(folder / "1")
    if type(model_).__module__.startswith("keras"):
        model_.export(path, verbose=False)
    else:
        model_.export(path)
    return path


def _recurrent(k, **more):
    layers = k.layers
    return k.Sequential(
        [
            k.Input((5, 3)),
            layers.LSTM(4, return_sequences=True, **more),
            layers.Bidirectional(layers.GRU(3, return_sequences=True)),
            layers.SimpleRNN(2),
            layers.Dense(1),
        ]
    )


@model()
def tf_keras_recurrent_export(folder):
    return _exported(_recurrent(_tf_keras()), folder)


@model()
def keras3_recurrent_export(folder):
    return _exported(_recurrent(_keras()), folder)


@model()
def tf_keras_recurrent_saved_model(folder):
    """Model.save of tf-keras: many more functions, keras_metadata.pb."""
    _recurrent(_tf_keras()).save(str(folder / "1"))
    return str(folder / "1")


@model()
def tf_keras_compiled_saved_model(folder):
    """A compiled and trained model, its optimizer and metrics in the object graph."""
    k = _tf_keras()
    model_ = k.Sequential([k.layers.Dense(4, "relu", input_shape=(3,)), k.layers.Dense(2)])
    model_.compile("adam", k.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
    model_.fit(tf.ones([4, 3]), tf.constant([0, 1, 0, 1]), verbose=0)
    model_.save(str(folder / "1"))
    return str(folder / "1")


@model()
def tf_keras_stateful_rnn(folder):
    k = _tf_keras()
    model_ = k.Sequential(
        [k.layers.LSTM(4, stateful=True, batch_input_shape=(2, 5, 3)), k.layers.Dense(1)]
    )
    model_.save(str(folder / "1"))
    return str(folder / "1")


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH])
def keras3_stateful_rnn(folder):
    k = _keras()
    inputs = k.Input(batch_shape=(2, 5, 3))
    return _exported(k.Model(inputs, k.layers.GRU(4, stateful=True)(inputs)), folder)


@model()
def keras3_masked_unrolled(folder):
    k = _keras()
    ids = k.Input((6,), dtype="int32")
    x = k.layers.Embedding(20, 4, mask_zero=True)(ids)
    x = k.layers.LSTM(3, unroll=True)(x)
    return _exported(k.Model(ids, k.layers.Dense(2, activation="softmax")(x)), folder)


def _small(k):
    inputs = k.Input((8, 8, 3), name="image")
    x = k.layers.Conv2D(4, 3, activation="relu")(inputs)
    x = k.layers.BatchNormalization()(x)
    x = k.layers.Add()([x, k.layers.SeparableConv2D(4, 3, padding="same")(x)])
    x = k.layers.GlobalAveragePooling2D()(x)
    return k.Model(inputs, {"a": k.layers.Dense(2)(x), "b": k.layers.Dense(1)(x)})


@model(not_compared=[_NO_EMPTY_BATCH])
def tf_keras_h5(folder):
    _small(_tf_keras()).save(str(folder / "model.h5"))
    return str(folder / "model.h5")


@model(not_compared=[_NO_EMPTY_BATCH])
def tf_keras_zip(folder):
    _small(_tf_keras()).save(str(folder / "model.keras"))
    return str(folder / "model.keras")


@model(not_compared=[_NO_EMPTY_BATCH])
def keras3_zip(folder):
    _small(_keras()).save(str(folder / "model.keras"))
    return str(folder / "model.keras")


@model(not_compared=[_NO_EMPTY_BATCH])
def keras3_h5(folder):
    _small(_keras()).save(str(folder / "model.h5"))
    return str(folder / "model.h5")


@model(refused="layers of your own")
def keras3_custom_object(folder):
    """A layer class that is not there where the file is read."""
    k = _keras()

    class Doubling(k.layers.Layer):  # type: ignore[name-defined]
        def call(self, x):
            return x * 2.0

    inputs = k.Input((3,))
    model_ = k.Model(inputs, Doubling()(k.layers.Dense(2)(inputs)))
    model_.save(str(folder / "model.keras"))
    return str(folder / "model.keras")


@model(refused="Lambda")
def keras_lambda(folder):
    k = _tf_keras()
    model_ = k.Sequential([k.Input((3,)), k.layers.Lambda(lambda x: x * 2.0), k.layers.Dense(1)])
    model_.save(str(folder / "model.keras"))
    return str(folder / "model.keras")


@model(not_compared=[_NO_EMPTY_BATCH])
def keras3_mixed_precision(folder):
    k = _keras()
    k.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        return _exported(_small(k), folder)
    finally:
        k.mixed_precision.set_global_policy("float32")


@model()
def keras3_attention(folder):
    """A transformer block: einsum, layer normalisation, positions, causal mask."""
    k = _keras()
    ids = k.Input((6,), dtype="int32")
    x = k.layers.Embedding(30, 8)(ids) + k.layers.Embedding(6, 8)(k.ops.arange(6))
    attended = k.layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = k.layers.LayerNormalization()(x + attended)
    x = k.layers.LayerNormalization()(x + k.layers.Dense(8)(k.layers.Dense(16, "gelu")(x)))
    return _exported(k.Model(ids, k.layers.Dense(30)(x)), folder)


@model()
def tf_keras_augmentation(folder):
    """Preprocessing layers with stateful random ops."""
    k = _tf_keras()
    inputs = k.Input((8, 8, 3))
    x = k.layers.RandomFlip("horizontal", seed=1)(inputs)
    x = k.layers.RandomRotation(0.1, seed=2)(x)
    x = k.layers.Rescaling(1 / 255.0)(x)
    model_ = k.Model(inputs, k.layers.Conv2D(2, 3)(x))
    return _exported(model_, folder)


def _application(k, name):
    return getattr(k.applications, name)(weights=None, input_shape=(64, 64, 3), classes=10)


@model(flags=["--mode=inference"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def tf_keras_mobilenet_v2(folder):
    return _exported(_application(_tf_keras(), "MobileNetV2"), folder)


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def keras3_mobilenet_v2(folder):
    return _exported(_application(_keras(), "MobileNetV2"), folder)


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def tf_keras_resnet50(folder):
    return _exported(_application(_tf_keras(), "ResNet50"), folder)


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def keras3_resnet50_v2(folder):
    return _exported(_application(_keras(), "ResNet50V2"), folder)


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def tf_keras_efficientnet_b0_saved(folder):
    _application(_tf_keras(), "EfficientNetB0").save(str(folder / "1"))
    return str(folder / "1")


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def keras3_efficientnet_b0_zip(folder):
    _application(_keras(), "EfficientNetB0").save(str(folder / "model.keras"))
    return str(folder / "model.keras")


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def keras3_densenet121(folder):
    return _exported(_application(_keras(), "DenseNet121"), folder)


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def tf_keras_inception_v3_h5(folder):
    k = _tf_keras()
    model_ = k.applications.InceptionV3(weights=None, input_shape=(96, 96, 3), classes=10)
    model_.save(str(folder / "model.h5"))
    return str(folder / "model.h5")


@model(flags=["--batch_size=2"], not_compared=[_NO_EMPTY_BATCH], heavy=True)
def keras3_nasnet_mobile(folder):
    k = _keras()
    model_ = k.applications.NASNetMobile(weights=None, input_shape=(64, 64, 3), classes=10)
    return _exported(model_, folder)


@model(flags=["--batch_size=4"], not_compared=[_NO_EMPTY_BATCH])
def keras3_trained_with_seeds_tables_and_averages(folder):
    """What a v1 Session restored of none: a seed's state, a table, an average of the weights."""
    k = _keras()
    layers = k.layers
    word, x = k.Input((3,), dtype="int64", name="word"), k.Input((5,), name="x")
    unread = k.Input((2,), name="unread")
    rows = layers.Embedding(6, 4)(layers.IntegerLookup(vocabulary=[3, 5, 7, 9])(word))
    both = layers.Concatenate()([layers.Flatten()(rows), layers.Dense(4, dtype="mixed_float16")(x)])
    both = layers.Dropout(0.4)(layers.BatchNormalization()(both))
    made = k.Model([word, x, unread], layers.Dense(2, dtype="float32")(both))
    made.compile(k.optimizers.Adam(0.01, use_ema=True), "mse")
    made.save(str(folder / "model.keras"))
    return str(folder / "model.keras")
