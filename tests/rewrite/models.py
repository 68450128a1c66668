"""Small models of every kind, written to disk by plain TensorFlow."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

v1 = tf.compat.v1
RATE = 0.1


class Regression(tf.Module):
    """Two equally named variables, a function called by two callers, and a training step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="w")
        self.second = tf.Variable([[0.5, -0.5], [0.25, 1.0]], name="w")
        self.unused = tf.Variable(7.0, name="unused")

    @tf.function
    def squash(self, x):
        return tf.tanh(x) * 2.0

    @tf.function
    def lower(self, x):
        return self.squash(tf.matmul(x, self.first))

    @tf.function
    def upper(self, x):
        return self.squash(tf.matmul(x, self.second))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def predict(self, x):
        return {"y": self.upper(self.lower(x))}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.upper(self.lower(x)) - x))
        variables = [self.first, self.second]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(RATE * gradient)
        return {"loss": loss}


def write_tf2(path: Path) -> str:
    """A TensorFlow 2 SavedModel with the signatures serving_default and train_step."""
    module = Regression()
    signatures = {"serving_default": module.predict, "train_step": module.train_step}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return str(path)


def write_keras_layers(path: Path) -> str:
    """A SavedModel of a tf_keras model with a dropout and no training step."""
    import tf_keras

    tf_keras.utils.set_random_seed(3)
    model = tf_keras.Sequential(
        [
            tf_keras.layers.Dense(3, activation="relu", input_shape=(2,)),
            tf_keras.layers.Dropout(0.5),
            tf_keras.layers.Dense(1),
        ]
    )
    model.export(str(path))
    return str(path)


def write_tf1(path: Path) -> str:
    """A TensorFlow 1 SavedModel: a reference variable, a table with an asset, random output."""
    vocabulary = path.parent / "vocabulary.txt"
    vocabulary.write_text("red\ngreen\nblue\n")
    with tf.Graph().as_default(), v1.Session() as session:
        word = v1.placeholder(tf.string, [None], name="word")
        with tf.device("/device:CPU:0"):
            weights = v1.get_variable(
                "weights", initializer=tf.constant([1.0, 2.0, 4.0, 8.0]), use_resource=False
            )
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, tf.constant(str(vocabulary)))
        table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)[0],
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            1,
        )
        score = tf.gather(weights, table.lookup(word), name="score")
        noise = tf.random.uniform([2], name="noise")
        session.run([v1.global_variables_initializer()])
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={
                "serving_default": v1.saved_model.predict_signature_def(
                    {"word": word}, {"score": score, "noise": noise}
                )
            },
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer(),
        )
        builder.save()
    return str(path)


def linear_regression(resource: bool) -> tf.Graph:
    """y = x w + b by gradient descent; with `resource`, w is a resource variable."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(5)
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        target = v1.placeholder(tf.float32, [4, 1], name="target")
        initial = tf.random.normal([3, 1])  # another value at each initialisation
        weights = v1.get_variable("w", initializer=initial, use_resource=resource)
        bias = v1.get_variable("b", initializer=tf.zeros([1]), use_resource=False)
        error = tf.matmul(x, weights) + bias - target
        loss = tf.reduce_mean(tf.square(error), name="loss")
        v1.train.GradientDescentOptimizer(RATE).minimize(loss, name="train_op")
        v1.global_variables_initializer()
    return graph


def write_graph_def(path: Path) -> str:
    """A GraphDef of a training step."""
    path.write_bytes(linear_regression(resource=True).as_graph_def().SerializeToString())
    return str(path)


def write_meta_graph(folder: Path) -> str:
    """A MetaGraphDef with a signature, a checkpoint beside it."""
    graph = linear_regression(resource=True)
    with graph.as_default(), v1.Session() as session:
        session.run("init")
        saver = v1.train.Saver()
        path = saver.save(session, str(folder / "model"), write_meta_graph=False)
        meta_graph = saver.export_meta_graph()
        meta_graph.signature_def["score"].CopyFrom(
            v1.saved_model.predict_signature_def(
                {"x": graph.get_tensor_by_name("x:0")}, {"y": graph.get_tensor_by_name("add:0")}
            )
        )
    (folder / "model.meta").write_bytes(meta_graph.SerializeToString())
    return path + ".meta"


class Routed(tf.Module):
    """A matrix and a counter, both called "Variable"; a table; a helper called everywhere."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        self.matrix = tf.Variable([[0.5, 0.25], [-0.5, 1.0]])
        self.count = tf.Variable(0, dtype=tf.int64)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            default_value=-1,
        )

    @tf.function
    def mix(self, x):
        return tf.tanh(tf.matmul(x, self.matrix))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="x"),
            tf.TensorSpec([None], tf.string, name="words"),
        ]
    )
    def predict(self, x, words):
        self.count.assign_add(1)
        with tf.device("/device:CPU:0"):
            y = self.mix(x)
        with tf.device("/device:CPU:1"):
            y = self.mix(y)
        for _ in tf.range(3):
            y = self.mix(y)
        y = self.mix(y) if tf.reduce_sum(y) > 0.0 else self.mix(-y)
        return {"y": y, "ids": self.table.lookup(words), "count": self.count.read_value()}


def write_routed(path: Path) -> str:
    """A SavedModel of Routed with the signature serving_default."""
    vocabulary = path.parent / "words.txt"
    vocabulary.write_text("red\ngreen\nblue\n")
    module = Routed(vocabulary)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.predict})
    return str(path)


def write_keras3_step(path: Path) -> str:
    """A tf.Module with a Keras 3 model, its optimizer and a train_step, as README has it."""
    import keras

    keras.utils.set_random_seed(3)
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])

    class Step(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.optimizer = keras.optimizers.Adam()
            self.optimizer.build(net.trainable_variables)

        @tf.function(
            input_signature=[tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None, 1], name="y")]
        )
        def train_step(self, x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.net(x) - y) ** 2)
            variables = self.net.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    step = Step()
    tf.saved_model.save(step, str(path), signatures={"train_step": step.train_step})
    return str(path)
