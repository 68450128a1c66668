"""TensorFlow Serving's own test SavedModels, made anew from what they hold.

Known from tensorflow_serving/servables/tensorflow/testdata/saved_model_half_plus_two.py and
export_counter.py there.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tests.corpus.entry import model
from tests.corpus.saving import save, save_session

v1 = tf.compat.v1


def _info(tensors):
    return {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}


def signature(inputs, outputs, method="tensorflow/serving/predict"):
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
            "regress_x_to_y": signature({"inputs": examples}, {"outputs": y}, regress),
            "regress_x_to_y2": signature({"inputs": examples}, {"outputs": y2}, regress),
            "regress_x2_to_y3": signature({"inputs": x2}, {"outputs": y3}, regress),
            "classify_x_to_y": signature({"inputs": examples}, {"scores": y}, classify),
            "serving_default": signature({"x": x}, {"y": y}),
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
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="tf_example")
        x = v1.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]
        y = tf.identity(v1.Variable(0.5, name="a") * x + v1.Variable(2.0, name="b"), name="y")
        session.run(v1.global_variables_initializer())
        regress = signature({"inputs": examples}, {"outputs": y}, "tensorflow/serving/regress")
        return save_session(session, folder, {"regress_x_to_y": regress})


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
    return save(module, folder, serving_default=module.predict, regress_x_to_y=module.regress)


@model(not_compared=["has a reference type float_ref"])
def counter(folder):
    """Signatures without inputs, with side effects."""
    with tf.Graph().as_default(), v1.Session() as session:
        count = v1.Variable(0.0, name="counter", use_resource=False)
        delta = v1.placeholder(tf.float32, name="delta")
        signatures = {
            "get_counter": signature({}, {"output": count}),
            "incr_counter": signature({}, {"output": count.assign_add(1.0)}),
            "incr_counter_by": signature({"delta": delta}, {"output": count.assign_add(delta)}),
            "reset_counter": signature({}, {"output": count.assign(0.0)}),
        }
        session.run(v1.global_variables_initializer())
        return save_session(session, folder, signatures)
