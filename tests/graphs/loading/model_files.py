"""Tiny models in every format, for the tests of loading them."""

import io
import zipfile

import numpy as np
import tensorflow as tf

from graphs.run_session import initialize

v1 = tf.compat.v1


def zipped(names):
    """The bytes of a zip archive of files that hold "x"."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return buffer.getvalue()


class Dense(tf.Module):
    """y = relu(x w + b)."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(np.ones((4, 3), np.float32), name="w")
        self.b = tf.Variable(np.zeros(3, np.float32), name="b")

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def serve(self, x):
        return {"y": tf.nn.relu(x @ self.w + self.b)}


class TrainedDense(Dense):
    """Dense with a table of words from an asset and a step of gradient descent."""

    def __init__(self, vocabulary):
        super().__init__()
        self.count = tf.Variable(7, trainable=False, dtype=tf.int64, name="count")
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                vocabulary,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        )

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([2], tf.string)])
    def look_up(self, x, word):
        return {"y": tf.nn.relu(x @ self.w + self.b), "row": self.table.lookup(word)}

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)])
    def train_step(self, x, labels):
        with tf.GradientTape() as tape:
            logits = x @ self.w + self.b
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        variables = [self.w, self.b]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        self.count.assign_add(1)
        return {"loss": loss}


def training_graph(optimizer=None, resource=True):
    """A v1 graph: x [?,4] -> w -> loss, an optimizer, an initialiser and a saver."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        w = v1.get_variable("w", [4, 3], use_resource=resource)
        y = tf.matmul(x, w, name="y")
        loss = tf.reduce_mean(tf.square(y), name="loss")
        if optimizer is not None:
            step = v1.get_variable(
                "global_step",
                [],
                tf.int64,
                v1.zeros_initializer(),
                trainable=False,
                use_resource=resource,
            )
            optimizer.minimize(loss, global_step=step)
        v1.global_variables_initializer()
        saver = v1.train.Saver()
    return graph, saver


def write_saved_model_v1(directory, tags=("serve",), more_tags=None):
    """A TensorFlow 1 SavedModel that computes y = x w, w all ones.

    With `more_tags` it has a second MetaGraphDef, which computes z = x w + x w besides.
    """
    graph = tf.Graph()
    with graph.as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        w = v1.get_variable("w", initializer=np.ones((4, 3), np.float32), use_resource=False)
        y = tf.matmul(x, w, name="y")
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})
        builder = v1.saved_model.builder.SavedModelBuilder(str(directory))
        builder.add_meta_graph_and_variables(
            session, list(tags), {"serving_default": signature}, strip_default_attrs=True
        )
        if more_tags:
            z = tf.add(y, y, name="z")
            signature = v1.saved_model.predict_signature_def({"x": x}, {"z": z})
            builder.add_meta_graph(list(more_tags), {"serving_default": signature})
        builder.save()


def run(model, feeds, times=1):
    """Initialises and runs a loaded model in a session; returns the last run's values."""
    graph = tf.Graph()
    with graph.as_default(), v1.Session() as session:
        tf.import_graph_def(model.graph_def, name="")
        initialize(session, model.initialization, model.variables)
        values = []
        for _ in range(times):
            values.append(session.run(list(model.fetches), feeds))
        return values
