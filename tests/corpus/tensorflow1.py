"""TensorFlow 1: reference variables, loops, queues, partitioned variables, estimator exports."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_toggles

from tests.corpus.entry import model
from tests.corpus.saving import save_session, serve_session

v1 = tf.compat.v1


def _v1_loops(build):
    """Calls with v1 control flow (Switch, Enter, ...) in a graph of its own."""
    before = control_flow_v2_toggles.control_flow_v2_enabled()
    control_flow_v2_toggles.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            return build(session)
    finally:
        if before:
            control_flow_v2_toggles.enable_control_flow_v2()


@model()
def reference_variables_momentum(folder):
    """A training graph with slots, a global step, an exponential decay and a train_op."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        label = v1.placeholder(tf.int64, [None], name="label")
        hidden = tf.nn.relu(x @ v1.get_variable("w", [4, 8], use_resource=False))
        logits = hidden @ v1.get_variable("v", [8, 3], use_resource=False)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits), name="loss"
        )
        step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(0.1, step, 100, 0.9)
        train = v1.train.MomentumOptimizer(rate, 0.9).minimize(loss, step, name="train_op")
        v1.add_to_collection("train_op", train)
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"x": x}, {"logits": logits})


@model()
def partitioned_variables(folder):
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int32, [None], name="ids")
        table = v1.get_variable(
            "table",
            [10, 4],
            initializer=v1.random_uniform_initializer(seed=1),
            partitioner=tf.compat.v1.fixed_size_partitioner(3),
            use_resource=False,
        )
        y = tf.nn.embedding_lookup(table, ids, name="y")
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"ids": ids}, {"y": y})


@model()
def v1_while_loop(folder):
    def build(session):
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.eye(3, dtype=np.float32) * 0.5, use_resource=True)
        _, y = tf.while_loop(
            lambda i, _: i < 4, lambda i, y: (i + 1, tf.tanh(y @ w) + x), (tf.constant(0), x)
        )
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"x": x}, {"y": y})

    return _v1_loops(build)


@model()
def v1_trained_dynamic_rnn(folder):
    """Gradients through a v1 loop: stacks and nested frames."""

    def build(session):
        v1.set_random_seed(2)
        x = v1.placeholder(tf.float32, [None, 5, 3], name="x")
        w = v1.get_variable("w", [6, 3], use_resource=False)

        def step(state, at):
            return tf.tanh(tf.concat([state, at], 1) @ w)

        zero = tf.zeros([tf.shape(x)[0], 3])
        states = tf.scan(step, tf.transpose(x, [1, 0, 2]), zero)
        loss = tf.reduce_mean(tf.square(states), name="loss")
        train = v1.train.AdagradOptimizer(0.1).minimize(loss, name="train_op")
        v1.add_to_collection("train_op", train)
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"x": x}, {"states": states})

    return _v1_loops(build)


@model(not_compared=["slice index 0 of dimension 0 out of bounds"])  # an empty batch has no x[0]
def v1_cond(folder):
    def build(session):
        x = v1.placeholder(tf.float32, [None], name="x")
        big = v1.placeholder(tf.bool, [], name="big")
        w = v1.get_variable("w", initializer=3.0, use_resource=False)
        y = v1.cond(big, lambda: x * w, lambda: tf.cond(x[0] > 0, lambda: x, lambda: -x))
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"x": x, "big": big}, {"y": y})

    return _v1_loops(build)


@model()
def v1_while_in_functions(folder):
    """While and If as functions in a v1 graph (control flow 2)."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None], name="x")
        _, y = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y * 2.0 + 1.0), (tf.constant(0), x)
        )
        y = tf.cond(tf.reduce_sum(y) > 0, lambda: y, lambda: y * 0.5)
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"x": x}, {"y": y})


@model()
def estimator_export(folder):
    """As an Estimator exports: parsed examples, embedding columns, three kinds of signatures."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(3)
        examples = v1.placeholder(tf.string, [None], name="input_example_tensor")
        features = v1.parse_example(
            examples,
            {
                "age": tf.io.FixedLenFeature([1], tf.float32, [30.0]),
                "job": tf.io.VarLenFeature(tf.string),
            },
        )
        bucket = tf.strings.to_hash_bucket_fast(features["job"].values, 11)
        jobs = tf.SparseTensor(features["job"].indices, bucket, features["job"].dense_shape)
        table = v1.get_variable("job_embedding", [11, 4], use_resource=False)
        job = v1.nn.safe_embedding_lookup_sparse([table], jobs, combiner="mean")
        hidden = tf.concat([features["age"], job], 1)
        logits = tf.identity(hidden @ v1.get_variable("w", [5, 2], use_resource=False))
        scores = tf.nn.softmax(logits)
        classes = tf.tile(tf.constant([["no", "yes"]]), [tf.shape(scores)[0], 1])
        step = v1.train.get_or_create_global_step()
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        assert step is not None
        signatures = {
            "serving_default": v1.saved_model.classification_signature_def(
                examples, classes, scores
            ),
            "regression": v1.saved_model.regression_signature_def(examples, logits[:, :1]),
            "predict": v1.saved_model.predict_signature_def(
                {"examples": examples}, {"probabilities": scores, "logits": logits}
            ),
        }
        return save_session(session, folder, signatures, main_op=v1.tables_initializer())


@model()
def train_and_serve_meta_graphs(folder):
    """A MetaGraphDef to train with and one to serve with, over the same variables."""
    out = folder / "1"
    builder = v1.saved_model.Builder(str(out))

    def graph(training):
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.ones((3, 2), np.float32), use_resource=False)
        y = tf.nn.dropout(x @ w, rate=0.5, seed=7) if training else x @ w
        return x, tf.identity(y, name="y")

    with tf.Graph().as_default(), v1.Session() as session:
        x, y = graph(True)
        loss = tf.reduce_mean(tf.square(y), name="loss")
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")
        v1.add_to_collection("train_op", train)
        session.run(v1.global_variables_initializer())
        builder.add_meta_graph_and_variables(
            session, ["train"], {"train": v1.saved_model.predict_signature_def({"x": x}, {"y": y})}
        )
    with tf.Graph().as_default():
        x, y = graph(False)
        v1.train.Saver()
        builder.add_meta_graph(
            ["serve"], {"serving_default": v1.saved_model.predict_signature_def({"x": x}, {"y": y})}
        )
    builder.save()
    return str(out)


@model()
def v1_queue_input(folder):
    """A FIFO queue that is filled and emptied in one run."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2, 3], name="x")
        queue = v1.FIFOQueue(10, [tf.float32], shapes=[[2, 3]])
        with tf.control_dependencies([queue.enqueue(x)]):
            y = tf.identity(queue.dequeue() * 2.0, name="y")
        return serve_session(session, folder, {"x": x}, {"y": y})


@model(not_compared=["does not currently support the 'shared_name' attr"])
def v1_one_shot_iterator(folder):
    """An iterator inside the graph; each run gives the next element."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        numbers = v1.data.make_one_shot_iterator(tf.data.Dataset.range(100).repeat()).get_next()
        y = x + tf.cast(numbers, tf.float32)
        return serve_session(session, folder, {"x": x}, {"y": y})


@model()
def v1_initializable_iterator(folder):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        dataset = tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32) * 0.5).batch(2)
        iterator = v1.data.make_initializable_iterator(dataset)
        y = x + tf.reduce_sum(iterator.get_next())
        return serve_session(
            session, folder, {"x": x}, {"y": y}, main_op=tf.group(iterator.initializer)
        )


@model(not_compared=["SymbolicGradient"])
def defun_in_v1_graph(folder):
    """Calls by function name, `_noinline`, and SymbolicGradient."""
    from tensorflow.python.framework import function

    with tf.Graph().as_default(), v1.Session() as session:

        @function.Defun(tf.float32, noinline=True)
        def cube(x):
            return x * x * x

        @function.Defun(tf.float32)
        def square(x):
            return x * x

        x = v1.placeholder(tf.float32, [None], name="x")
        y = cube(x) + square(x)
        slope = tf.gradients(y, x)[0]
        return serve_session(session, folder, {"x": x}, {"y": y, "slope": slope})


@model(not_compared=["it differs between two runs"])
def stateful_random(folder):
    """Random ops with and without seeds."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        seeded = tf.random.normal([4], seed=3)
        y = x + v1.get_variable("w", initializer=np.ones(4, np.float32)) * seeded
        z = tf.nn.dropout(x, rate=0.5)
        session.run(v1.global_variables_initializer())
        return serve_session(session, folder, {"x": x}, {"seeded": y, "unseeded": z})


@model()
def devices_of_a_lost_cluster(folder):
    """Parameter servers and workers that nobody has any more, in a MetaGraphDef's ops."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        with tf.device("/job:ps/task:3"):
            w = v1.get_variable("w", initializer=np.ones((2, 2), np.float32), use_resource=False)
        with tf.device("/job:worker/task:7/device:GPU:2"):
            y = tf.nn.relu(x @ w, name="y")
        config = v1.ConfigProto(allow_soft_placement=True)
        del session, config
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        graph_def = tf.compat.v1.get_default_graph().as_graph_def()
    for node in graph_def.node:
        node.device = ""
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        graph = v1.get_default_graph()
        session.run(graph.get_operation_by_name("w/Assign"))
        saver = v1.train.Saver({"w": graph.get_tensor_by_name("w:0")})
        save_session(session, folder, {"serving_default": signature}, saver=saver)
    return str(_with_devices(folder / "1", {"w": "/job:ps/task:3", "y": "/job:worker/task:7"}))


def _with_devices(path, devices):
    from tensorflow.core.protobuf import saved_model_pb2

    file = path / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for node in proto.meta_graphs[0].graph_def.node:
        node.device = devices.get(node.name, "")
    file.write_bytes(proto.SerializeToString())
    return path


@model()
def complex_and_half(folder):
    """FFT, complex numbers, float16, bfloat16 and int8 in one graph."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.complex64, [None, 8], name="x")
        h = v1.placeholder(tf.float16, [None, 4], name="h")
        b = v1.placeholder(tf.bfloat16, [None, 4], name="b")
        i = v1.placeholder(tf.int8, [None], name="i")
        outputs = {
            "spectrum": tf.signal.fft(x),
            "half": tf.nn.softmax(h),
            "brain": b * b,
            "int": i + i,
        }
        return serve_session(session, folder, {"x": x, "h": h, "b": b, "i": i}, outputs)


@model()
def frozen_graph_def(folder):
    """Variables turned to constants: the usual frozen .pb of TensorFlow 1."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 8, 8, 3], name="input")
        kernel = tf.constant(np.linspace(-1, 1, 108, dtype=np.float32).reshape(3, 3, 3, 4))
        y = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        tf.nn.softmax(tf.reduce_mean(y, [1, 2]), name="output")
    (folder / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return str(folder / "frozen.pb")


@model()
def meta_graph_with_checkpoint(folder):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(4)
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        y = tf.nn.relu(x @ v1.get_variable("w", [4, 4], use_resource=False))
        loss = tf.reduce_mean(tf.square(y), name="loss")
        train = v1.train.AdamOptimizer(0.1).minimize(loss)
        v1.add_to_collection("train_op", train)
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(folder / "model")) + ".meta"
