"""Every kind of model, split and written: it loads and trains, with batches nobody tried before."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite.split.any_batch.input_assertions import have_effects_wait
from rewrite.split.prove_split import ProofLimits, prove_split
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.split_model_test import _emitted, _saved
from tests.rewrite.split.tensorflow_1_test import tensorflow_1_loops

v1 = tf.compat.v1
FEATURES = 3
STEPS = 3


class Recurrent(tf.Module):
    """A Keras LSTM with batch normalisation, and a training step of any batch size."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(1)
        self.model = keras.Sequential(
            [keras.Input((STEPS, FEATURES)), keras.layers.LSTM(4),
             keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(1)]
        )  # fmt: skip
        self.weights = [v.value for v in self.model.trainable_variables]
        self.others = [v.value for v in self.model.non_trainable_variables]

    def train_step(self, x):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x, training=True)))
        for variable, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


class Diagonals(tf.Module):
    """A step whose gradient makes matrices of diagonals, of lengths that only a variable knows."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (tf.Variable(tf.eye(FEATURES) * scale) for scale in (0.5, 0.25))

    def train_step(self, x):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            own = tf.linalg.diag_part(tf.tanh(x @ self.left))
            loss = tf.reduce_mean(tf.tanh(own @ self.right) ** 2)
        weights = [self.left, self.right]
        for variable, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            variable.assign_sub(gradient)
        return {"loss": loss}


def test_matrices_of_diagonals_behind_variables(tmp_path):
    module = Diagonals()
    spec = tf.TensorSpec([5, FEATURES, FEATURES], tf.float32)
    step = tf.function(module.train_step, input_signature=[spec])
    given = str(tmp_path / "given")
    tf.saved_model.save(module, given, signatures={"train_step": step})
    _, emitted = _emitted(given, tmp_path / "split", 2)
    x = tf.constant(np.random.default_rng(0).normal(size=spec.shape), tf.float32)
    losses = []
    for path in (given, emitted):
        run = tf.saved_model.load(path).signatures["train_step"]
        losses.append([float(run(x=x)["loss"]) for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_loops_and_norms_of_any_batch_size(tmp_path):
    module = Recurrent()
    spec = tf.TensorSpec([None, STEPS, FEATURES], tf.float32)
    step = tf.function(module.train_step, input_signature=[spec])
    given = str(tmp_path / "given")
    tf.saved_model.save(module, given, signatures={"train_step": step})
    _, emitted = _emitted(given, tmp_path / "split", 3)
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    rng = np.random.default_rng(0)
    for batch in (3, 8, 5, 31):
        x = tf.constant(rng.normal(size=(batch, STEPS, FEATURES)), tf.float32)
        wanted = one.signatures["train_step"](x=x)["loss"]
        np.testing.assert_allclose(other.signatures["train_step"](x=x)["loss"], wanted, rtol=1e-3)
    for before, after in zip(
        [*one.weights, *one.others], [*other.weights, *other.others], strict=True
    ):
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-5)


def trained(x, weight, rate):
    """The loss, and a descent at a rate."""
    loss = tf.reduce_mean(tf.square(tf.tanh(x @ weight)))
    slope = tf.gradients(loss, weight)[0]
    step = tf.raw_ops.AssignSubVariableOp(resource=weight.handle, value=rate * slope)
    return loss, step


def with_another_rate(x, weight):
    """The rate has a default value, and another signature feeds it."""
    variable = v1.get_variable("rate", initializer=0.1, use_resource=True)
    rate = v1.placeholder_with_default(variable.read_value(), [])
    loss, step = trained(x, weight, rate)
    with tf.control_dependencies([step]):
        done = tf.identity(loss)
    info, build = v1.saved_model.build_tensor_info, v1.saved_model.build_signature_def
    other = build({"x": info(x), "rate": info(rate)}, {"loss": info(done)}, "other")
    return build({"x": info(x)}, {"loss": info(done)}, "step"), other, {"rate": 2.0}


def with_the_same_function(x, weight):
    """Two signatures call one function."""

    def step(x):
        loss, update = trained(x, weight, 0.1)
        with tf.control_dependencies([update]):
            return tf.identity(loss)

    spec = tf.TensorSpec([None, FEATURES], tf.float32)
    made = tf.function(step, autograph=False).get_concrete_function(spec)
    signature = v1.saved_model.predict_signature_def
    return signature({"x": x}, {"loss": made(x)}), signature({"x": x}, {"loss": made(x)}), {}


def with_the_same_call(x, weight):
    """Two signatures name the very same call; one of them, what an op makes of it."""
    step, other, feeds = with_the_same_function(x, weight)
    other.CopyFrom(step)
    loss = v1.get_default_graph().get_tensor_by_name(step.outputs["loss"].name)
    done = v1.saved_model.build_tensor_info(tf.identity(loss))
    other.outputs["handed_on"].CopyFrom(done)
    return step, other, feeds


def with_sparse_outputs(x, weight):
    """The other signature gives what is whole in both steps, as a sparse tensor."""
    loss, step = trained(x, weight, 0.1)
    rows = tf.sort(tf.tanh(x @ weight), 0)
    sparse = tf.sparse.from_dense(rows)
    with tf.control_dependencies([step]):
        done = tf.identity(loss + 0.0 * tf.reduce_sum(sparse.values))
    info, build = v1.saved_model.build_tensor_info, v1.saved_model.build_signature_def
    other = build({"x": info(x)}, {"loss": info(sparse)}, "other")
    return build({"x": info(x)}, {"loss": info(done)}, "step"), other, {}


BUILDS = [with_another_rate, with_the_same_function, with_the_same_call, with_sparse_outputs]


def model_with(build, folder):
    """A SavedModel of TensorFlow 1 with signatures train_step and other, and what to feed."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, FEATURES), "x")
        start = np.eye(FEATURES, dtype=np.float32)
        weight = v1.get_variable("weight", initializer=start, use_resource=True)
        step, other, feeds = build(x, weight)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        signatures = {"train_step": step, "other": other}
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return feeds


TRAINED = LoadOptions(signature="train_step", batch_size=6)


@pytest.mark.parametrize("build", BUILDS)
def test_other_signatures_run_the_unsplit_ops(build, tmp_path):
    given = str(tmp_path / "given")
    feeds = model_with(build, given)
    split, emitted = _emitted(given, tmp_path / "split", 3, TRAINED)
    assert split.step.num_sums
    found = []
    for path in (given, emitted):
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            loaded = v1.saved_model.load(session, ["serve"], path).signature_def["other"]
            inputs = {info.name: feeds.get(key, np.ones((2, FEATURES), np.float32))
                      for key, info in loaded.inputs.items()}  # fmt: skip
            fetches = [info.name or info.coo_sparse.values_tensor_name
                       for _, info in sorted(loaded.outputs.items())]  # fmt: skip
            found += [np.concatenate(session.run(fetches, inputs), None) for _ in range(2)]
    np.testing.assert_allclose(found[2:], found[:2], rtol=1e-6)


class Counting(tf.Module):
    """A step that counts its runs, whatever the batch."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(tf.ones([FEATURES, 2]))
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def train_step(self, x):
        """One step of gradient descent."""
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ self.weight)))
        self.weight.assign_sub(tape.gradient(loss, self.weight))
        return {"loss": loss}


def test_a_batch_that_is_refused_changes_nothing(tmp_path):
    module = Counting()
    spec = tf.TensorSpec([None, FEATURES], tf.float32)
    step = tf.function(module.train_step, input_signature=[spec])
    given = str(tmp_path / "given")
    tf.saved_model.save(module, given, signatures={"train_step": step})
    _, emitted = _emitted(given, tmp_path / "split", 3)
    loaded = tf.saved_model.load(emitted)
    with pytest.raises(tf.errors.InvalidArgumentError, match="signature train_step_whole"):
        loaded.signatures["train_step"](x=tf.ones([2, FEATURES]))
    assert loaded.count.numpy() == 0
    loaded.signatures["train_step_whole"](x=tf.ones([2, FEATURES]))
    loaded.signatures["train_step"](x=tf.ones([3, FEATURES]))
    assert loaded.count.numpy() == 2


def test_what_has_an_effect_waits_for_the_refusal():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")
        v1.Assert(tf.size(x) > 2, ["few"], name="refusal")
        counter = v1.get_variable("counter", shape=[], use_resource=False)
        counter.assign_add(1.0, name="count")
        random = tf.random.uniform([2], name="draw")
        variable = v1.get_variable("resource", shape=[], use_resource=True)
        variable.assign_add(1.0, name="add", read_value=False)
        tf.identity(random, "plain")
        v1.count_up_to(v1.get_variable("limited", initializer=0, use_resource=False), 5, "up")
    graph_def = graph.as_graph_def()
    refusal = next(node.name for node in graph_def.node if node.op == "Assert")
    have_effects_wait(graph_def, refusal, {}, {})
    waits = {node.name for node in graph_def.node if f"^{refusal}" in node.input}
    assert {"count", "add", "up", "draw/RandomUniform"} <= waits and "plain" not in waits
    assert not {"x", "counter", "resource", refusal} & waits


@pytest.mark.parametrize("kind", ["loop", "merge", "function"])
def test_effects_of_tensorflow_1_wait_for_the_refusal(kind, tmp_path):
    """In a loop, behind a conditional one side of which reads the batch, in a function."""
    with tf.Graph().as_default() as graph, tensorflow_1_loops():
        x = v1.placeholder(tf.float32, (None, FEATURES), "x")
        count = v1.get_variable("count", initializer=0.0, use_resource=True)
        weight = v1.get_variable("weight", initializer=np.eye(FEATURES), use_resource=True)
        done = COUNTED[kind](x, count)
        with tf.control_dependencies([done]):
            loss = tf.reduce_mean(tf.tanh(tf.cast(x, tf.float64) @ weight), name="loss")
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    options = LoadOptions(fetch=(loss.name,), batch_size=6)
    split = split_model(load(str(tmp_path / "model.pb"), options), 3)
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.import_graph_def(split.source.split_graph, name="")
        session.run(["count/Assign", "weight/Assign"])
        for batch, counted in ((2, 0), (6, 1), (2, 1)):
            few = pytest.raises(tf.errors.InvalidArgumentError, match="unsplit")
            with few if batch < 3 else contextlib.nullcontext():
                session.run("loss:0", {"x:0": np.ones((batch, FEATURES), np.float32)})
            assert session.run("count/Read/ReadVariableOp:0") == counted
    proof = prove_split(split.flat, split.decisions, split.step, 3, ProofLimits(run_seconds=60.0))
    assert not proof.differing


def counted_in_a_loop(x, count):
    def once(i):
        add = tf.raw_ops.AssignAddVariableOp(resource=count.handle, value=tf.constant(1.0))
        with tf.control_dependencies([add]):
            return i + 1

    return tf.while_loop(lambda i: i < 1, once, (0,))[0]


def counted_behind_a_conditional(x, count):
    rarely = v1.placeholder_with_default(False, ())
    one = v1.cond(rarely, lambda: tf.reduce_sum(tf.sort(x, 0)), lambda: tf.constant(1.0))
    return tf.raw_ops.AssignAddVariableOp(resource=count.handle, value=one)


def counted_in_a_function(x, count):
    @function.Defun(tf.resource, noinline=True)
    def add(handle):
        done = tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1.0))
        with tf.control_dependencies([done]):
            return tf.constant(0)

    return add(count.handle)


COUNTED = {
    "loop": counted_in_a_loop,
    "merge": counted_behind_a_conditional,
    "function": counted_in_a_function,
}


def classifier():
    """A step of TensorFlow 1 that takes any batch size."""
    x = v1.placeholder(tf.float32, (None, FEATURES), "x")
    rng = np.random.default_rng(0)
    start = rng.normal(size=(FEATURES, 4)).astype(np.float32)
    weight = v1.get_variable("weight", initializer=start, use_resource=True)
    hidden = tf.tanh(x @ weight, name="hidden")
    loss = tf.reduce_mean(tf.reduce_sum(tf.square(hidden), 1), name="loss")
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    with tf.control_dependencies([train]):
        done = tf.identity(loss, name="trained_loss")
    return x, hidden, done


def graph_def(folder):
    with tf.Graph().as_default() as graph:
        classifier()
        path = folder / "model.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path), LoadOptions(fetch=("trained_loss:0", "hidden:0"), batch_size=5)


def meta_graph(folder):
    with tf.Graph().as_default(), v1.Session() as session:
        classifier()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "model"))
    return str(folder / "model.meta"), LoadOptions(
        fetch=("trained_loss:0", "hidden:0"), batch_size=5
    )


def saved_model_v1(folder):
    with tf.Graph().as_default(), v1.Session() as session:
        x, hidden, done = classifier()
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def(
            {"x": x}, {"hidden": hidden, "trained_loss": done}
        )
        builder = v1.saved_model.Builder(str(folder / "model"))
        builder.add_meta_graph_and_variables(session, ["serve"], {"train_step": signature})
        builder.save()
    return str(folder / "model"), LoadOptions(batch_size=5)


def saved_model_v2(folder):
    return _saved(folder / "given", None), LoadOptions()


KINDS = [graph_def, meta_graph, saved_model_v1]


@pytest.fixture(scope="module", params=KINDS, ids=[kind.__name__ for kind in KINDS])
def emitted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    path, options = request.param(folder)
    return _emitted(path, folder / "split", 3, options)[1]


def steps(session, meta_graph_def, signature, batches):
    """What a signature gives for these batches, one after the other, and the weight then."""
    found = meta_graph_def.signature_def[signature]
    outputs = {name: info.name for name, info in found.outputs.items()}
    rng, values = np.random.default_rng(0), []
    for batch in batches:
        x = rng.normal(size=(batch, FEATURES)).astype(np.float32)
        values.append(session.run(outputs, {found.inputs["x"].name: x}))
    handle = session.graph.get_tensor_by_name("weight:0")
    return values, session.run(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))


def test_a_v1_session_trains_with_any_batch_size(emitted):
    results = []
    for signature in ("train_step", "train_step_whole"):
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            loaded = v1.saved_model.load(session, ["serve"], emitted)
            results.append(steps(session, loaded, signature, (5, 3, 11)))
    for one, other in zip(results[0][0], results[1][0], strict=True):
        assert one.keys() == other.keys() and len(one) == 2
        for name, value in one.items():
            np.testing.assert_allclose(value, other[name], rtol=1e-4, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-4, atol=1e-6)


def test_variables_are_there_once(emitted):
    graph_def = sniff(emitted).proto.meta_graphs[0].graph_def
    assert [node.name for node in graph_def.node if node.op == "VarHandleOp"] == ["weight"]


def test_too_few_entries_name_the_unsplit_step(emitted):
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        loaded = v1.saved_model.load(session, ["serve"], emitted)
        with pytest.raises(tf.errors.InvalidArgumentError, match="signature train_step_whole"):
            steps(session, loaded, "train_step", (2,))
        steps(session, loaded, "train_step_whole", (2,))


def test_tensorflow_2_loads_it(emitted):
    loaded = tf.saved_model.load(emitted)
    x = tf.ones((7, FEATURES))
    first = loaded.signatures["train_step"](x=x)["trained_loss"]
    assert loaded.signatures["train_step_whole"](x=x)["trained_loss"] < first


def test_a_checkpoint_of_the_original_is_read(emitted, tmp_path):
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        classifier()
        weight = np.full((FEATURES, 4), 0.5, np.float32)
        v1.global_variables()[0].load(weight, session)
        prefix = v1.train.Saver().save(session, str(tmp_path / "given"))
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.saved_model.load(session, ["serve"], emitted)
        with graph.as_default():
            variable = graph.get_tensor_by_name("weight:0")
            value = tf.raw_ops.RestoreV2(
                prefix=prefix, tensor_names=["weight"], shape_and_slices=[""], dtypes=[tf.float32]
            )[0]
            session.run(tf.raw_ops.AssignVariableOp(resource=variable, value=value))
            read = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)
            np.testing.assert_array_equal(session.run(read), weight)
    keys = dict(tf.train.list_variables(f"{emitted}/variables/variables"))
    assert keys == {"weight": [FEATURES, 4]}  # and so the original reads what the split one saves
