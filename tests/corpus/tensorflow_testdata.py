"""TensorFlow's and TensorFlow Serving's own test SavedModels, made anew from what they hold.

Known from tensorflow/cc/saved_model/testdata/generate_saved_models.py, generate_chunked_models.py
and tensorflow_serving/servables/tensorflow/testdata/{saved_model_half_plus_two,export_counter}.py.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests.corpus.entry import model
from tests.graphs.loading.chunked_writer import write_chunked

v1 = tf.compat.v1


def _info(tensors):
    return {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}


def _signature(inputs, outputs, method="tensorflow/serving/predict"):
    return v1.saved_model.build_signature_def(_info(inputs), _info(outputs), method)


def half_plus_two(
    folder: Path, device="/cpu:0", as_text=False, main_op=False, sharded=False, more_tags=None
) -> str:
    """y = a x + b and its four signatures over parsed examples; an asset; CPU or GPU devices."""
    asset = folder / "foo.txt"
    asset.write_text("asset-file-contents")
    out = folder / "00000123"
    soft = v1.ConfigProto(allow_soft_placement=True)  # whatever devices there are
    with tf.Graph().as_default(), v1.Session(config=soft) as session:
        with tf.device(device):
            a = v1.Variable(0.5, name="a", use_resource=False)
            b = v1.Variable(2.0, name="b", use_resource=False)
            c = v1.Variable(3.0, name="c", use_resource=False)
            examples = v1.placeholder(tf.string, [None], name="tf_example")
            features = {
                "x": tf.io.FixedLenFeature([1], tf.float32),
                "x2": tf.io.FixedLenFeature([1], tf.float32, [0.0]),
            }
            with tf.device("/cpu:0"):
                parsed = v1.parse_example(examples, features)
            x = tf.identity(parsed["x"], name="x")
            y = tf.identity(a * x + b, name="y")
            y2 = tf.identity(a * x + c, name="y2")
            x2 = tf.identity(parsed["x2"], name="x2")
            y3 = tf.identity(a * x2 + c, name="y3")
        path = tf.constant(str(asset))
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
        name = v1.Variable(
            "foo.txt", name="filename_tensor", trainable=False, collections=[], use_resource=False
        )
        assign = name.assign("foo.txt")
        regress, classify = "tensorflow/serving/regress", "tensorflow/serving/classify"
        signatures = {
            "regress_x_to_y": _signature({"inputs": examples}, {"outputs": y}, regress),
            "regress_x_to_y2": _signature({"inputs": examples}, {"outputs": y2}, regress),
            "regress_x2_to_y3": _signature({"inputs": x2}, {"outputs": y3}, regress),
            "classify_x_to_y": _signature({"inputs": examples}, {"scores": y}, classify),
            "serving_default": _signature({"x": x}, {"y": y}),
        }
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(out))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signatures,
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.group(v1.saved_model.main_op.main_op(), assign)
            if main_op
            else tf.group(assign),
            saver=v1.train.Saver(sharded=True) if sharded else None,
        )
        if more_tags:
            builder.add_meta_graph(list(more_tags), signatures, clear_devices=True)
        builder.save(as_text)
    return str(out)


@model()
def half_plus_two_cpu(folder):
    return half_plus_two(folder)


@model()
def half_plus_two_gpu(folder):
    return half_plus_two(folder, device="/gpu:0")


@model()
def half_plus_two_pbtxt(folder):
    return half_plus_two(folder, as_text=True)


@model()
def half_plus_two_main_op(folder):
    return half_plus_two(folder, main_op=True)


@model()
def half_plus_two_sharded(folder):
    return half_plus_two(folder, sharded=True)


@model()
def half_plus_two_cpu_and_gpu_tags(folder):
    return half_plus_two(folder, device="/gpu:0", more_tags=["serve", "cpu"])


@model(flags=["--tags=serve,cpu"])
def half_plus_two_second_meta_graph(folder):
    return half_plus_two(folder, device="/gpu:0", more_tags=["serve", "cpu"])


@model()
def half_plus_two_mlmd(folder):
    """Other people's files in assets.extra stay."""
    out = half_plus_two(folder)
    extra = Path(out, "assets.extra")
    extra.mkdir()
    (extra / "mlmd_uuid").write_text("test_mlmd_uuid")
    return out


@model()
def half_plus_two_regress_only(folder):
    out = folder / "1"
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="tf_example")
        x = v1.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]
        y = tf.identity(v1.Variable(0.5, name="a") * x + v1.Variable(2.0, name="b"), name="y")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(out))
        regress = _signature({"inputs": examples}, {"outputs": y}, "tensorflow/serving/regress")
        builder.add_meta_graph_and_variables(session, ["serve"], {"regress_x_to_y": regress})
        builder.save()
    return str(out)


@model()
def half_plus_two_v2(folder):
    """saved_model_half_plus_two_tf2_cpu."""

    class HalfPlusTwo(tf.Module):
        def __init__(self):
            super().__init__()
            self.a = tf.Variable(0.5, name="a")
            self.b = tf.Variable(2.0, name="b")
            self.c = tf.Variable(3.0, name="c")

        @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
        def predict(self, x):
            return {"y": self.a * x + self.b}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
        def regress(self, inputs):
            x = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]
            return {"outputs": self.a * x + self.c}

    module = HalfPlusTwo()
    signatures = {"serving_default": module.predict, "regress_x_to_y": module.regress}
    tf.saved_model.save(module, str(folder / "1"), signatures)
    return str(folder / "1")


@model(not_compared=["has a reference type float_ref"])
def counter(folder):
    """Signatures without inputs, with side effects."""
    out = folder / "1"
    with tf.Graph().as_default(), v1.Session() as session:
        count = v1.Variable(0.0, name="counter", use_resource=False)
        delta = v1.placeholder(tf.float32, name="delta")
        signatures = {
            "get_counter": _signature({}, {"output": count}),
            "incr_counter": _signature({}, {"output": count.assign_add(1.0)}),
            "incr_counter_by": _signature({"delta": delta}, {"output": count.assign_add(delta)}),
            "reset_counter": _signature({}, {"output": count.assign(0.0)}),
        }
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(out))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return str(out)


@model()
def x_plus_2_with_hash_table(folder):
    """x looked up in a table of words to numbers, plus 2; TensorFlow 1."""
    out = folder / "1"
    with tf.Graph().as_default(), v1.Session() as session:
        word = v1.placeholder(tf.string, [None], name="word")
        table = v1.lookup.StaticHashTable(
            v1.lookup.KeyValueTensorInitializer(["0", "1", "2"], [0.0, 1.0, 2.0]), -1.0
        )
        y = tf.identity(table.lookup(word) + v1.Variable(2.0, name="two"), name="y")
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(out))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": _signature({"word": word}, {"y": y})},
            main_op=v1.tables_initializer(),
        )
        builder.save()
    return str(out)


@model()
def string_model(folder):
    """A model whose only variable is a string and whose outputs are strings."""
    out = folder / "1"
    with tf.Graph().as_default(), v1.Session() as session:
        name = v1.placeholder(tf.string, [None], name="name")
        greeting = v1.Variable("hello ", name="greeting", use_resource=False)
        signature = _signature({"name": name}, {"said": tf.strings.join([greeting, name])})
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(out))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    return str(out)


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
    tf.saved_model.save(_Vars(), str(folder / "1"), options=options)
    return str(folder / "1")


@model(refused="looking for something to run")
def cyclic_module(folder):
    """An object graph with a cycle and no function: there is nothing to place."""
    module = tf.Module()
    module.child = tf.Module()
    module.child.parent = module
    module.child.my_variable = tf.Variable(3.0, name="MyVariable")
    tf.saved_model.save(module, str(folder / "1"))
    return str(folder / "1")


@model()
def cyclic_module_that_computes(folder):
    module = _Vars()
    module.child.parent = module
    tf.saved_model.save(module, str(folder / "1"))
    return str(folder / "1")


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

    tf.saved_model.save(AssetModule(), str(folder / "1"))
    return str(folder / "1")


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

    tf.saved_model.save(StaticHashTableModule(), str(folder / "1"))
    return str(folder / "1")


@model(refused="looking for something to run")
def simple_v1_model(folder):
    """A variable and nothing else."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.Variable(1.0)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder / "1"))
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
    return str(folder / "1")


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
    tf.saved_model.save(module, str(folder / "1"), {"train_step": module.train_step})
    return str(folder / "1")


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

    tf.saved_model.save(Module(), str(folder / "1"))
    return str(folder / "1")


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

    tf.saved_model.save(Module(), str(folder / "1"), options=options)
    assert (folder / "1/debug/saved_model_debug_info.pb").exists()
    return str(folder / "1")
