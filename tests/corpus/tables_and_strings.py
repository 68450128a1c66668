"""Hash tables, assets, strings and decoding: ops that have kernels on CPUs only."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.corpus.entry import model
from tests.corpus.saving import save, serve

_TEXT = [tf.TensorSpec([None], tf.string, name="text")]


def _vocabulary(folder, words="red\ngreen\nblue\n12\n34\n"):
    path = folder / "vocabulary.txt"
    path.write_text(words)
    return str(path)


@model()
def two_tables_one_asset(folder):
    """Both directions of one vocabulary file, before and after a trained embedding."""

    class Words(tf.Module):
        def __init__(self):
            super().__init__()
            file = tf.saved_model.Asset(_vocabulary(folder))
            index = tf.lookup.TextFileIndex
            self.to_id = tf.lookup.StaticVocabularyTable(
                tf.lookup.TextFileInitializer(
                    file, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
                ),
                num_oov_buckets=2,
            )
            self.to_word = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer(
                    file, tf.int64, index.LINE_NUMBER, tf.string, index.WHOLE_LINE
                ),
                "unknown",
            )
            self.embedding = tf.Variable(np.linspace(-1, 1, 28, dtype=np.float32).reshape(7, 4))

        @tf.function(input_signature=_TEXT)
        def f(self, text):
            ids = self.to_id.lookup(text)
            scores = tf.gather(self.embedding, ids) @ tf.transpose(self.embedding)
            return {"scores": scores, "best": self.to_word.lookup(tf.argmax(scores, 1))}

    return serve(Words(), folder)


@model()
def mutable_hash_table(folder):
    class Table(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
            self.table.insert(tf.constant(["1", "2"]), tf.constant([10, 20], tf.int64))

        @tf.function(input_signature=_TEXT)
        def count(self, text):
            found = self.table.lookup(text)
            self.table.insert(text, found + 1)
            return {"found": found, "size": self.table.size()}

    module = Table()
    return save(module, folder, serving_default=module.count)


@model()
def dense_hash_table(folder):
    class Table(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.experimental.DenseHashTable(
                tf.int64, tf.float32, [0.0, 0.0], empty_key=-1, deleted_key=-2
            )
            self.table.insert(tf.constant([1, 2], tf.int64), tf.constant([[1.0, 2.0], [3.0, 4.0]]))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="key")])
        def f(self, key):
            return {"y": self.table.lookup(key) * 2.0}

    return serve(Table(), folder)


@model()
def strings(folder):
    class Strings(tf.Module):
        @tf.function(input_signature=_TEXT)
        def f(self, text):
            lower = tf.strings.lower(tf.strings.regex_replace(text, r"[^0-9a-z]+", " "))
            parts = tf.strings.split(lower).to_tensor("")
            return {
                "bucket": tf.strings.to_hash_bucket_strong(lower, 10, [1, 2]),
                "length": tf.strings.length(text, unit="UTF8_CHAR"),
                "joined": tf.strings.reduce_join(parts, 1, separator="-"),
                "sub": tf.strings.substr(text, 0, 1),
                "numbers": tf.strings.to_number(tf.strings.regex_replace(text, r"\D", "")),
                "format": tf.strings.format("{}", tf.shape(text)),
                "ngrams": tf.strings.ngrams(tf.strings.bytes_split(text), 2).to_tensor(""),
            }

    return serve(Strings(), folder)


@model()
def parse_examples(folder):
    """Fixed, variable and ragged features of serialized examples."""

    class Parser(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
        def f(self, examples):
            parsed = tf.io.parse_example(
                examples,
                {
                    "x": tf.io.FixedLenFeature([2], tf.float32, [0.0, 1.0]),
                    "words": tf.io.VarLenFeature(tf.string),
                    "ids": tf.io.RaggedFeature(tf.int64),
                },
            )
            return {
                "x": parsed["x"] * 2.0,
                "words": tf.sparse.to_dense(parsed["words"], ""),
                "ids": parsed["ids"].row_lengths(),
            }

    return serve(Parser(), folder)


@model()
def decode_images(folder):
    """Encoded images in a batch, decoded in a loop, resized and convolved."""

    class Images(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.ones([3, 3, 3, 2]) * 0.1, name="kernel")

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="jpeg")])
        def f(self, jpeg):
            def decode(content):
                image = tf.io.decode_jpeg(content, channels=3)
                return tf.image.resize(tf.cast(image, tf.float32) / 255.0, [8, 8])

            images = tf.map_fn(decode, jpeg, tf.float32)
            return {"y": tf.nn.conv2d(images, self.kernel, 1, "VALID")}

    return serve(Images(), folder)


@model()
def tensors_through_strings(folder):
    """serialize_tensor, parse_tensor, base64 and raw bytes."""

    class Codec(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def f(self, x):
            coded = tf.io.encode_base64(tf.io.serialize_tensor(x))
            again = tf.io.parse_tensor(tf.io.decode_base64(coded), tf.float32)
            return {"y": tf.ensure_shape(again, [None, 3]) * 2.0, "coded": coded}

    return serve(Codec(), folder)


@model()
def keras_text_vectorization(folder):
    import tf_keras

    layer = tf_keras.layers.TextVectorization(output_sequence_length=4)
    layer.adapt(["12 34 56", "34 78"])
    model_ = tf_keras.Sequential(
        [
            tf_keras.Input((1,), dtype=tf.string),
            layer,
            tf_keras.layers.Embedding(10, 3),
            tf_keras.layers.GlobalAveragePooling1D(),
            tf_keras.layers.Dense(1),
        ]
    )
    model_.save(str(folder / "1"))
    return str(folder / "1")


@model()
def keras3_string_lookup(folder):
    import keras

    text = keras.Input((), dtype="string")
    lookup = keras.layers.StringLookup(vocabulary=["1", "2", "3"])
    number = keras.Input((1,))
    normal = keras.layers.Normalization(mean=2.0, variance=4.0)(number)
    joined = keras.layers.Embedding(4, 3)(lookup(text))
    y = keras.layers.Dense(2)(keras.layers.Concatenate()([joined, normal]))
    keras.Model([text, number], y).export(str(folder / "1"), verbose=False)
    return str(folder / "1")


@model()
def dense_features(folder):
    """Feature columns in a Keras layer of TensorFlow 2 (DenseFeatures)."""
    import tf_keras

    columns = [
        tf.feature_column.numeric_column("age"),
        tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_vocabulary_list("job", ["1", "2"]), 3
        ),
        tf.feature_column.indicator_column(
            tf.feature_column.categorical_column_with_hash_bucket("town", 5)
        ),
    ]

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.features = tf_keras.layers.DenseFeatures(columns)
            self.out = tf_keras.layers.Dense(1)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 1], tf.float32, name="age"),
                tf.TensorSpec([None, 1], tf.string, name="job"),
                tf.TensorSpec([None, 1], tf.string, name="town"),
            ]
        )
        def f(self, age, job, town):
            return {"y": self.out(self.features({"age": age, "job": job, "town": town}))}

    return serve(Model(), folder)
