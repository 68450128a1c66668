"""Where variables, tables and iterators of loaded models get their values from."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import saved_model_pb2

from graphs.errors import ModelError
from graphs.graph_view import GraphView
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from tests.graphs.loading import model_files
from tests.graphs.loading.load_test import TWO

v1 = tf.compat.v1


def test_missing_variables_and_assets(trained_v2, folder):
    path = folder / "incomplete"
    shutil.copytree(trained_v2, path)
    shutil.rmtree(path / "assets")
    with pytest.raises(ModelError, match=r"asset 'words.txt' is missing"):
        load(path)
    shutil.rmtree(path / "variables")
    with pytest.raises(ModelError, match="its variables are missing"):
        load(path)


def test_an_asset_that_nothing_reads_may_be_missing_as_tensorflow_has_it(served_v2, folder):
    path = folder / "declares_an_asset"
    shutil.copytree(served_v2, path)
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    asset = saved.meta_graphs[0].asset_file_def.add(filename="foo.txt")
    constant = saved.meta_graphs[0].graph_def.node.add(name="no_reader", op="Const")
    constant.attr["dtype"].type = tf.string.as_datatype_enum
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("foo.txt"))
    asset.tensor_info.name = "no_reader:0"
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    model = load(path)
    assert model.initialization.asset_feeds == {}
    assert any("'foo.txt', which the model declares, is not in" in note for note in model.guessed)


def test_variables_that_are_saved_twice_count_once(folder):
    class Twice(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
            self.optimizer = keras.optimizers.SGD(0.1)
            self.optimizer.build(self.model.trainable_variables)
            self.weights = [variable.value for variable in self.model.variables]

        @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.float32)])
        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.model(x) ** 2)
            weights = self.model.trainable_variables
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

    module = Twice()
    path = folder / "keras_3_module"
    tf.saved_model.save(module, path, signatures={"train_step": module.train_step})
    model = load(path)
    assert sum(variable.trainable for variable in model.variables) > 2
    assert model.trainable_bytes == (3 * 2 + 2) * 4
    # The saver restores some copies, the step uses others: their values are the objects' own.
    start = model.initialization
    used = GraphView(model.graph_def).ancestors(model.fetches)
    of_run = {each.name for each in model.variables if each.op in used}
    assert start.restore_op == ""
    assert of_run <= set(start.saved_variables)
    checkpoint = tf.train.load_checkpoint(start.checkpoint_prefix)
    (key,) = (start.saved_variables[name] for name in of_run if "kernel" in name)
    np.testing.assert_array_equal(checkpoint.get_tensor(key), module.model.layers[0].kernel)


def test_a_checkpoint_beside_a_meta_graph_is_found_from_other_folders(folder, monkeypatch):
    graph = tf.Graph()
    with graph.as_default(), v1.Session() as session:
        v1.get_variable("v", [2], initializer=v1.ones_initializer(), use_resource=True)
        saver = v1.train.Saver()
        session.run(v1.global_variables_initializer())
        saver.save(session, str(folder / "ck" / "model"))
    monkeypatch.chdir(folder)
    model = load("ck/model.meta", LoadOptions(fetch=("v/Read/ReadVariableOp:0",)))
    assert model.initialization.checkpoint_prefix == str(folder / "ck" / "model")


def test_iterators_are_started_and_tables_are_filled(folder):
    graph = tf.Graph()
    with graph.as_default():
        dataset = tf.data.Dataset.range(3).map(lambda i: tf.cast(i, tf.float32)).repeat()
        number = v1.data.make_initializable_iterator(dataset).get_next()
        keys = v1.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
        row = v1.lookup.StaticHashTable(keys, -1).lookup(tf.constant("b"))
        v = v1.get_variable("v", [], initializer=v1.ones_initializer(), use_resource=True)
        tf.add(v * number, tf.cast(row, tf.float32), name="sum")
    path = folder / "pipeline.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    model = load(path, LoadOptions(fetch=("sum:0",)))
    assert model.feeds == ()
    assert set(model.initialization.init_ops) == {
        "MakeIterator",
        "v/Assign",
        next(n.name for n in graph.as_graph_def().node if n.op.startswith("LookupTableImport")),
    }
    assert model_files.run(model, {}, times=4) == [[2.0], [3.0], [4.0], [2.0]]
    nothing = load(path, LoadOptions(fetch=("v/Read/ReadVariableOp:0",)))
    assert nothing.initialization.init_ops == ("v/Assign",)


def test_variables_that_nothing_initialises_are_named(folder):
    graph, _ = model_files.training_graph(v1.train.GradientDescentOptimizer(0.1))
    graph_def = graph.as_graph_def()
    kept = [
        n for n in graph_def.node if n.name not in ("init", "w/Assign") and "save" not in n.name
    ]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    path = folder / "uninitialised.pb"
    path.write_bytes(graph_def.SerializeToString())
    assert load(path, TWO).initialization.random_variables == ("w",)


def test_slots_of_an_optimizer_have_values_by_what_they_belong_to(folder):
    class Trained(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable([3.0, 4.0], name="same")
            self.v = tf.Variable([5.0], name="same")
            self.optimizer = tf_keras.optimizers.legacy.SGD(0.5, momentum=0.5)
            self.train_step()

        @tf.function(input_signature=[])
        def train_step(self):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(self.w**2) + tf.reduce_sum(self.v**3)
            weights = [self.w, self.v]
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    module = Trained()
    path = folder / "slots"
    tf.saved_model.save(module, path, signatures={"train_step": module.train_step})
    start = load(path).initialization
    checkpoint = tf.train.load_checkpoint(start.checkpoint_prefix)
    values = {name: checkpoint.get_tensor(key) for name, key in start.saved_variables.items()}
    slots = [value for name, value in values.items() if "momentum" in name and value.ndim]
    expected = [
        module.optimizer.get_slot(each, "momentum").numpy() for each in (module.w, module.v)
    ]
    assert sorted(map(list, slots)) == sorted(map(list, expected))
    assert start.random_variables == ()
