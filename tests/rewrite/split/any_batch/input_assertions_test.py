"""What a step was not decided for is refused: it would be computed with another run's sizes."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.errors import UsageError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.split.decision import Split
from rewrite.split.prove_split import ProofLimits, prove_split
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.split_model_test import _emitted

v1 = tf.compat.v1
BATCH = 8
ANY = "any rank"


class Step(tf.Module):
    """A step of gradient descent that counts its runs."""

    def __init__(self, terms):
        super().__init__()
        self.weight, self.count = tf.Variable(0.5), tf.Variable(0)
        self.terms = terms

    def train_step(self, x):
        """One step."""
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.terms(x * self.weight)))
        self.weight.assign_sub(tape.gradient(loss, self.weight))
        return {"loss": loss}


def pairs_behind_the_first(x):
    """Windows of odd length only; it takes all columns but the first by their number."""
    shape = tf.shape(x)
    return tf.reduce_sum(tf.reshape(x[:, 1 : shape[1]], [shape[0], (shape[1] - 1) // 2, 2]), [1, 2])


def blocks_behind_the_first(x):
    """Batches of one more than a multiple of four only."""
    batch = tf.shape(x)[0]
    return tf.reshape(x[1:batch, :1], [(batch - 1) // 4, 4]) * tf.cast(batch, tf.float32)


def of_flat_rows(x):
    """Inputs of any rank: all of an entry but the batch lies in one row."""
    rows = tf.reshape(x, [tf.shape(x)[0], -1])
    return tf.reduce_sum(rows, 1) * tf.cast(tf.size(x[0]), tf.float32) * tf.cast(
        tf.rank(x), tf.float32
    )  # fmt: skip


STEPS = {
    "odd windows": (pairs_behind_the_first, [None, None], (BATCH, 5), (6, 5), (BATCH, 7)),
    "odd windows, one batch": (pairs_behind_the_first, [BATCH, None], (BATCH, 5), None, (BATCH, 7)),
    "batches of blocks": (blocks_behind_the_first, [None, 3], (9, 3), None, (13, 3)),
    "any rank": (of_flat_rows, None, (BATCH, 4), (6, 5), (BATCH, 5, 4)),
}
"""{what: (terms of a loss, the input's shape, that it is split for, another one that the split step
takes, one that it can't take)}."""


def saved(what, folder):
    terms, shape, decided_for, *_ = STEPS[what]
    module = Step(terms)
    step = tf.function(module.train_step, input_signature=[tf.TensorSpec(shape, tf.float32, "x")])
    tf.saved_model.save(module, str(folder), signatures={"train_step": step})
    return str(folder), LoadOptions(input_shape={"x": decided_for})


@pytest.mark.parametrize("what", STEPS)
def test_sizes_that_the_step_was_not_decided_for(what, tmp_path):
    *_, decided_for, taken, refused = STEPS[what]
    given, options = saved(what, tmp_path / "given")
    _, emitted = _emitted(given, tmp_path / "split", 2, options, {"x": 0})
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    rng = np.random.default_rng(0)
    for shape in (decided_for, taken or decided_for):
        x = tf.constant(rng.normal(size=shape), tf.float32)
        wanted = one.signatures["train_step"](x=x)["loss"]
        np.testing.assert_allclose(other.signatures["train_step"](x=x)["loss"], wanted, rtol=1e-4)
    x = tf.constant(rng.normal(size=refused), tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="signature train_step_whole"):
        other.signatures["train_step"](x=x)
    assert other.count.numpy() == one.count.numpy()
    wanted = one.signatures["train_step"](x=x)["loss"]
    found = other.signatures["train_step_whole"](x=x)["loss"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("what", STEPS)
def test_what_refuses_is_proven(what, tmp_path):
    given, options = saved(what, tmp_path / "given")
    split = split_model(load(given, options), 2, {"x": 0})
    proof = prove_split(split.flat, split.decisions, split.step, 2, ProofLimits(run_seconds=60.0))
    assert not proof.differing and proof.run == "equal"


def test_a_placeholder_that_says_no_shape_takes_any_size(tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, name="x")
        columns = tf.cast(tf.shape(x)[1], tf.float32)
        loss = tf.reduce_mean(tf.tanh(tf.reduce_sum(x, 1)) * columns, 0, name="loss")
    graph_def = graph.as_graph_def()
    next(node for node in graph_def.node if node.name == "x").attr.pop("shape", None)
    (tmp_path / "model.pb").write_bytes(graph_def.SerializeToString())
    options = LoadOptions(fetch=(loss.name,), input_shape={"x": (6, 4)})
    split = split_model(load(str(tmp_path / "model.pb"), options), 2)
    assert split.decisions.takes_any_batch
    given = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    wanted = np.mean(np.tanh(given.sum(1)) * 3)
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.import_graph_def(split.source.split_graph, name="")
        np.testing.assert_allclose(session.run("loss:0", {"x:0": given}), wanted, rtol=1e-5)


class CountsInFunctions(Step):
    """A step that counts in a branch or a loop, which hand on what they are given of the batch."""

    def train_step(self, x):
        """One step."""
        loss = tf.reduce_mean(self.terms(x * self.weight))

        def counted(number, value):
            self.count.assign_add(1)
            return number + 1, value * 2.0

        likely = self.weight > 0.0
        _, loss = tf.cond(likely, lambda: counted(0, loss), lambda: (0, loss))
        _, loss = tf.while_loop(lambda number, _: number < 2, counted, (0, loss))
        return {"loss": loss}


def test_what_functions_do_waits_for_the_refusal(tmp_path):
    """What they are given waits, but TensorFlow opens them: their ops wait for what they take."""
    module = CountsInFunctions(tf.square)
    spec = tf.TensorSpec([None, 3], tf.float32, "x")
    step = tf.function(module.train_step, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path / "given"), signatures={"train_step": step})
    options = LoadOptions(input_shape={"x": (BATCH, 3)})
    _, emitted = _emitted(str(tmp_path / "given"), tmp_path / "split", 2, options, {"x": 0})
    other = tf.saved_model.load(emitted)
    for _ in range(5):
        with pytest.raises(tf.errors.InvalidArgumentError, match="fewer than 2 entries"):
            other.signatures["train_step"](x=tf.ones([1, 3]))
    assert other.count.numpy() == 0
    assert other.signatures["train_step"](x=tf.ones([3, 3]))["loss"].numpy() == 2.0
    assert other.count.numpy() == 3


class TwoInputs(Step):
    """The same with a second input."""

    def train_step(self, x, y):  # type: ignore[override]
        """One step."""
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.terms(x * self.weight, y)))
        self.weight.assign_sub(tape.gradient(loss, self.weight))
        return {"loss": loss}


def of_edges(x, y):
    """As many edges as there are entries, or twice as many, or ..."""
    rows = tf.reshape(tf.reshape(y, [tf.shape(x)[0], -1]) * x[:, :1], [-1])
    return rows / tf.cast(tf.size(rows), tf.float32)


FOLLOWING = {
    "one target for all": (lambda x, y: tf.reduce_sum(x, 1) - y, [None], (BATCH,), (1,)),
    "pairs": (lambda x, y: y @ x, [None, None], (BATCH, BATCH), None),
    "edges": (of_edges, [None], (2 * BATCH,), (3 * BATCH,)),
}
"""{what: (terms of a loss, the second input's shape, that it is split for, one that is refused)}.

No other number of rows of pairs has to be refused: they needn't be as many as there are entries.
"""


@pytest.mark.parametrize("what", FOLLOWING)
def test_inputs_that_do_not_follow_the_batch(what, tmp_path):
    terms, shape, decided_for, refused = FOLLOWING[what]
    module = TwoInputs(terms)
    specs = [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec(shape, tf.float32, "y")]
    step = tf.function(module.train_step, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "given"), signatures={"train_step": step})
    options = LoadOptions(input_shape={"x": (BATCH, 3), "y": decided_for})
    given = str(tmp_path / "given")
    split, emitted = _emitted(given, tmp_path / "split", 2, options, {"x": 0})
    assert split.decisions.takes_any_batch
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    rng = np.random.default_rng(0)
    for batch in (BATCH, BATCH - 2):
        taken = [size // BATCH * batch for size in decided_for]
        x, y = (tf.constant(rng.normal(size=s), tf.float32) for s in ((batch, 3), taken))
        wanted = one.signatures["train_step"](x=x, y=y)["loss"]
        found = other.signatures["train_step"](x=x, y=y)["loss"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
    x = tf.constant(rng.normal(size=(BATCH, 3)), tf.float32)
    fed = {"x": x, "y": tf.ones(refused or (3, BATCH))}
    wanted = one.signatures["train_step"](**fed)["loss"].numpy()
    assert np.isfinite(wanted)
    if refused is None:
        found = other.signatures["train_step"](**fed)["loss"].numpy()
        assert found == pytest.approx(wanted, rel=1e-4)
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="signature train_step_whole"):
        other.signatures["train_step"](**fed)
    assert other.count.numpy() == 2 and np.isfinite(other.weight)
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.decisions, split.step, 2, limits)
    assert not proof.differing and proof.run == "equal"


def saved_by_tensorflow_1(inputs, loss, folder):
    """The default graph as a SavedModel with one signature."""
    info = v1.saved_model.build_tensor_info
    signature = v1.saved_model.build_signature_def(
        {name: info(tensor) for name, tensor in inputs.items()}, {"loss": info(loss)}, "train"
    )
    builder = v1.saved_model.Builder(str(folder))
    with v1.Session() as session:
        builder.add_meta_graph_and_variables(
            session, ["serve"], signature_def_map={"train_step": signature}
        )
    builder.save()
    return str(folder)


def test_a_fed_tensor_that_an_op_makes_has_the_shape_that_it_is_split_for(tmp_path):
    with tf.Graph().as_default():
        made = tf.identity(v1.placeholder(tf.float32, [BATCH, None], "x"), name="made")
        loss = tf.reduce_mean(tf.tanh(made) * tf.cast(tf.size(made), tf.float32), name="loss")
        path = saved_by_tensorflow_1({"made": made}, loss, tmp_path / "given")
    options = LoadOptions(input_shape={"made": (BATCH, 4)})
    split, emitted = _emitted(path, tmp_path / "split", 2, options)
    assert any(isinstance(each, Split) for each in split.decisions.answer_of_op.values())
    with tf.Graph().as_default(), v1.Session() as session:
        model = v1.saved_model.load(session, ["serve"], emitted)
        loss = model.signature_def["train_step"].outputs["loss"].name
        given = np.random.default_rng(0).normal(size=(BATCH, 4)).astype(np.float32)
        wanted = np.mean(np.tanh(given) * given.size)
        np.testing.assert_allclose(session.run(loss, {"made:0": given}), wanted, rtol=1e-5)
        with pytest.raises(tf.errors.InvalidArgumentError, match="split for the shape"):
            session.run(loss, {"made:0": given[:, :3]})


@pytest.mark.parametrize("fed", [0, 1])
def test_a_fed_tensor_beside_others_of_its_op_is_no_step_to_split(fed, tmp_path):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [BATCH, 4], "x")
        halves = tf.split(tf.tanh(x), 2, 1, name="halves")
        loss = tf.reduce_mean(halves[0] + 2 * halves[1], name="loss")
        path = saved_by_tensorflow_1({"x": x, "half": halves[fed]}, loss, tmp_path / "given")
    with pytest.raises(UsageError, match="of an op that makes several outputs"):
        split_model(load(path), 2)
