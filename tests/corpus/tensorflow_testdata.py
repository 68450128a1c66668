"""TensorFlow's own test SavedModels, made anew from what they hold.

Known from tensorflow/cc/saved_model/testdata/generate_saved_models.py and
generate_chunked_models.py.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests.corpus.entry import model
from tests.corpus.saving import save, save_session, serve_session
from tests.graphs.loading.chunked_writer import write_chunked

v1 = tf.compat.v1


@model()
def x_plus_2_with_hash_table(folder):
    """x looked up in a table of words to numbers, plus 2; TensorFlow 1."""
    with tf.Graph().as_default(), v1.Session() as session:
        word = v1.placeholder(tf.string, [None], name="word")
        table = v1.lookup.StaticHashTable(
            v1.lookup.KeyValueTensorInitializer(["0", "1", "2"], [0.0, 1.0, 2.0]), -1.0
        )
        y = tf.identity(table.lookup(word) + v1.Variable(2.0, name="two"), name="y")
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        return serve_session(
            session, folder, {"word": word}, {"y": y}, main_op=v1.tables_initializer()
        )


@model()
def string_model(folder):
    """A model whose only variable is a string and whose outputs are strings."""
    with tf.Graph().as_default(), v1.Session() as session:
        name = v1.placeholder(tf.string, [None], name="name")
        greeting = v1.Variable("hello ", name="greeting", use_resource=False)
        said = tf.strings.join([greeting, name])
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"name": name}, {"said": said})


class _Vars(tf.Module):
    """VarsAndArithmeticObjectGraph: three variables, one in a child, a captured constant."""

    def __init__(self):
        super().__init__()
        self.x = tf.Variable(1.0, name="variable_x")
        self.y = tf.Variable(2.0, name="variable_y")
        self.child = tf.Module()
        self.child.z = tf.Variable(3.0, name="child_variable")
        self.child.c = tf.convert_to_tensor(5.0)

    @tf.function(input_signature=[tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.float32)])
    def compute(self, a, b):
        return (a + self.x) * (b + self.y) / self.child.z + self.child.c


@model()
def vars_and_arithmetic(folder):
    """With debug information and a fingerprint."""
    options = tf.saved_model.SaveOptions(save_debug_info=True)
    return save(_Vars(), folder, options)


@model(refused="looking for something to run")
def cyclic_module(folder):
    """An object graph with a cycle and no function: there is nothing to place."""
    module = tf.Module()
    module.child = tf.Module()
    module.child.parent = module
    module.child.my_variable = tf.Variable(3.0, name="MyVariable")
    return save(module, folder)


@model()
def cyclic_module_that_computes(folder):
    module = _Vars()
    module.child.parent = module
    return save(module, folder)


@model()
def asset_module(folder):
    """A function without inputs that reads an asset."""

    class AssetModule(tf.Module):
        def __init__(self):
            super().__init__()
            (folder / "test_asset.txt").write_text("TEST ASSET FILE CONTENTS")
            self.asset = tf.saved_model.Asset(str(folder / "test_asset.txt"))

        @tf.function(input_signature=[])
        def read_file(self):
            return tf.io.read_file(self.asset)

    return save(AssetModule(), folder)


@model()
def static_hash_table_module(folder):
    """A table from an asset; the words have an unknown rank."""

    class StaticHashTableModule(tf.Module):
        def __init__(self):
            super().__init__()
            (folder / "words.txt").write_text("1\n7\n50\n")
            self.asset = tf.saved_model.Asset(str(folder / "words.txt"))
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer(
                    self.asset,
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                ),
                -1,
            )

        @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
        def lookup(self, word):
            return self.table.lookup(word)

    return save(StaticHashTableModule(), folder)


@model(refused="looking for something to run")
def simple_v1_model(folder):
    """A variable and nothing else."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.Variable(1.0)
        session.run(v1.global_variables_initializer())
        return save_session(session, folder)


@model()
def optimizer_slot_variables(folder):
    """OptimizerSlotVariableModule: a variable, an optimizer's slots and a training function."""
    import tf_keras

    class Trained(tf.Module):
        def __init__(self):
            super().__init__()
            self.v = tf.Variable([[1.0, 2.0]], name="v")
            self.optimizer = tf_keras.optimizers.legacy.Adam(0.1)

        @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ self.v - 1.0))
            self.optimizer.apply_gradients([(tape.gradient(loss, self.v), self.v)])
            return {"loss": loss}

    module = Trained()
    module.train_step(tf.zeros([1, 1]))
    return save(module, folder, train_step=module.train_step)


@model()
def uninitialized_variable(folder):
    """A variable of unknown shape without a value, which no signature reads."""

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(2.0, name="w")
            self.late = tf.Variable(
                tf.zeros([0]), shape=tf.TensorShape([None]), trainable=False, name="late"
            )

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def f(self, x):
            return {"y": x * self.w + tf.reduce_sum(self.late)}

    return save(Module(), folder)


@model()
def chunked_model(folder):
    """A large constant and large attributes in chunks of their own, as over 2 GiB."""

    weights = tf.random.stateless_normal([40, 30], [1, 2]).numpy()

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 40], tf.float32, name="x")])
        def f(self, x):
            return {"y": tf.nn.relu(x @ tf.constant(weights))}

    out = folder / "1"
    tf.saved_model.save(Module(), str(out))
    whole = saved_model_pb2.SavedModel.FromString((out / "saved_model.pb").read_bytes())
    graph = whole.meta_graphs[0].graph_def
    library = graph.library.SerializeToString()
    graph.ClearField("library")
    records = [library, graph.SerializeToString()]
    # SavedModel.meta_graphs[0].graph_def, and .library in it.
    parts = [([2, ("index", 0), 2], 2), ([2, ("index", 0), 2, 2], 1)]
    whole.meta_graphs[0].ClearField("graph_def")
    (out / "saved_model.pb").unlink()
    write_chunked(
        out / "saved_model.cpb", [[whole.SerializeToString(), *records]], parts, brotli=True
    )
    return str(out)


@model()
def x_plus_y_debug_info(folder):
    options = tf.saved_model.SaveOptions(save_debug_info=True)

    class Module(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.float32, name="x"),
                tf.TensorSpec([None], tf.float32, name="y"),
            ]
        )
        def add(self, x, y):
            return {"sum": x + y}

    path = save(Module(), folder, options)
    assert Path(path, "debug/saved_model_debug_info.pb").exists()
    return path
