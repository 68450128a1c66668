"""Whole models, split: what is written trains like the unsplit one, whatever batch it is given."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from graphs import zoo
from graphs.errors import UsageError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite.emit import emit
from rewrite.split.prove.written.prove_written import prove_written
from rewrite.split.split_model import StepToSplit, takes_any_batch
from tests.rewrite.split.run_step import split_model

v1 = tf.compat.v1


class Classifier(tf.Module):
    """Two layers, a loss divided by the batch size in three ways, and a counter."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.first = tf.Variable(rng.normal(size=(6, 8)).astype(np.float32), name="first")
        self.second = tf.Variable(rng.normal(size=(8, 3)).astype(np.float32), name="second")
        self.steps = tf.Variable(0, name="steps")

    def train_step(self, x, y):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ self.first)
            logits = hidden @ self.second
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            count = tf.cast(tf.shape(x)[0], tf.float32)
            loss = tf.reduce_mean(losses) + tf.reduce_sum(losses) / count
            loss += tf.reduce_sum(hidden) / tf.cast(tf.size(hidden), tf.float32)
        gradients = tape.gradient(loss, [self.first, self.second])
        for variable, gradient in zip([self.first, self.second], gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        self.steps.assign_add(1)
        return {"loss": loss, "hidden": hidden, "steps": self.steps.read_value()}


def _saved(folder, batch):
    module = Classifier()
    specs = [tf.TensorSpec([batch, 6], tf.float32), tf.TensorSpec([batch], tf.int32)]
    step = tf.function(module.train_step, input_signature=specs)
    tf.saved_model.save(module, str(folder), signatures={"train_step": step})
    return str(folder)


def _emitted(path, folder, num_shards, options=None, axes=None):
    split = split_model(load(path, options or LoadOptions()), num_shards, axes)
    folder.mkdir()
    nothing = {next(o for o in _origins(split)): ""}
    emit(split.source, nothing, folder, {})
    return split, str(folder)


def _origins(split):
    from graphs.building.flatten import flatten

    source = split.source
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    return [origin for origin in flat.origins if origin.node]


@pytest.fixture(scope="module", params=[None, 5], ids=["any batch", "batch of 5"])
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    given = _saved(folder / "given", request.param)
    _, split = _emitted(given, folder / "split", 3)
    return given, split, request.param


def _fed(batch):
    rng = np.random.default_rng(batch)
    labels = rng.integers(0, 3, batch).astype(np.int32)
    return tf.constant(rng.normal(size=(batch, 6)), tf.float32), tf.constant(labels)


def test_it_trains_like_the_unsplit_step(written):
    given, split, batch = written
    one, other = tf.saved_model.load(given), tf.saved_model.load(split)
    for size in (5, 5) if batch else (5, 3, 8, 31):
        x, y = _fed(size)
        wanted = one.signatures["train_step"](x=x, y=y)
        found = other.signatures["train_step"](x=x, y=y)
        assert set(found) == set(wanted)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    for name in ("first", "second", "steps"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-5, atol=1e-5)


def test_whether_it_takes_any_batch_is_known_before(written):
    given, _, batch = written
    assert takes_any_batch(load(given, LoadOptions())) == (batch is None)


def test_the_signature_is_as_it_was_and_the_unsplit_step_stays_beside_it(written):
    given, split, _ = written
    one, other = tf.saved_model.load(given), tf.saved_model.load(split)
    assert sorted(other.signatures) == ["train_step", "train_step_whole"]
    for name in other.signatures:
        found, wanted = other.signatures[name], one.signatures["train_step"]
        assert found.structured_input_signature == wanted.structured_input_signature
        assert found.structured_outputs == wanted.structured_outputs
    x, y = _fed(5)
    whole = other.signatures["train_step_whole"](x=x, y=y)
    np.testing.assert_array_equal(whole["loss"], one.signatures["train_step"](x=x, y=y)["loss"])


def test_a_v1_session_runs_both(written):
    _, split, _ = written
    x, y = (array.numpy() for array in _fed(5))
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        meta_graph = v1.saved_model.load(session, ["serve"], split)
        losses = []
        for name in ("train_step", "train_step_whole"):
            signature = meta_graph.signature_def[name]
            feeds = {signature.inputs["x"].name: x, signature.inputs["y"].name: y}
            losses.append(session.run(signature.outputs["loss"].name, feeds))
        assert losses[1] < losses[0]  # both have trained the same variables


def test_a_batch_of_fewer_entries_than_shards_names_the_unsplit_step(written):
    _, split, batch = written
    if batch:
        pytest.skip("it takes one batch size only")
    with pytest.raises(tf.errors.InvalidArgumentError, match="signature train_step_whole"):
        x, y = _fed(2)
        tf.saved_model.load(split).signatures["train_step"](x=x, y=y)


def test_checkpoints_go_both_ways(written, tmp_path):
    given, split, _ = written
    one, other = tf.saved_model.load(given), tf.saved_model.load(split)
    x, y = _fed(5)
    for trained, fresh in ((one, other), (other, one)):
        trained.signatures["train_step"](x=x, y=y)
        prefix = tf.train.Checkpoint(trained).write(str(tmp_path / "step"))
        tf.train.Checkpoint(fresh).read(prefix).assert_existing_objects_matched()
        np.testing.assert_array_equal(fresh.first, trained.first)


def test_a_graph_is_emitted_with_both_steps(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=5), path)
    _, split = _emitted(path, tmp_path / "split", 2)
    results = [_trained(split, signature) for signature in ("train_step", "train_step_whole")]
    for key, value in results[0].items():
        np.testing.assert_allclose(value, results[1][key], rtol=1e-3, atol=1e-5, err_msg=key)


def _trained(path, signature):
    """Outputs and variables after two steps."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        found = v1.saved_model.load(session, ["serve"], path).signature_def[signature]
        rng = np.random.default_rng(0)
        feeds = {}
        for _, info in sorted(found.inputs.items()):
            tensor = graph.get_tensor_by_name(info.name)
            is_id = tensor.dtype.is_integer
            shape = tensor.shape.as_list()
            feeds[tensor] = rng.integers(0, 2, shape) if is_id else rng.normal(size=shape)
        outputs = {name: info.name for name, info in found.outputs.items()}
        for _ in range(2):
            values = session.run(outputs, feeds)
        reads = {
            op.name: tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
            for op in graph.get_operations()
            if op.type == "VarHandleOp"
        }
        return {**values, **session.run(reads)}


def test_each_number_of_shards_is_split_as_if_it_were_the_only_one(tmp_path):
    source = load(_saved(tmp_path / "given", 8), LoadOptions())
    hosts = [(0, 0), (0, 1), (1, 2), (1, 3)]  # the host and device of each shard
    to_split = StepToSplit(source)
    with pytest.raises(UsageError, match="into 9 parts"):
        to_split.split(9)
    for places in (hosts, [], hosts[:2], hosts):
        num_shards = len(places) or 3
        again = to_split.split(num_shards, place_of_shard=places)
        alone = StepToSplit(source).split(num_shards, place_of_shard=places)
        for one, other in ((again.source, alone.source), (again.step, alone.step)):
            assert _serialized(one.graph_def) == _serialized(other.graph_def)


def _serialized(graph_def):
    return graph_def.SerializeToString(deterministic=True)


def test_more_shards_than_entries_are_refused(tmp_path):
    given = _saved(tmp_path / "given", 5)
    with pytest.raises(UsageError, match="into 6 parts"):
        split_model(load(given, LoadOptions()), 6)


def test_an_input_that_is_not_to_be_split_stays_whole(tmp_path):
    given = _saved(tmp_path / "given", 5)
    split = split_model(load(given, LoadOptions()), 2, {"train_step_y": -1})
    assert set(split.decisions.axis_of_feed) == {"train_step_x:0"}
    with pytest.raises(UsageError, match="no input 'z'"):
        split_model(load(given, LoadOptions()), 2, {"z": 0})


def test_a_step_that_was_made_up_is_not_split(tmp_path):
    module = Classifier()
    serve = tf.function(
        lambda x: {"y": x @ module.first}, input_signature=[tf.TensorSpec([None, 6])]
    )
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": serve})
    with pytest.raises(UsageError, match=r"no training step; .* saved after compile\(\)"):
        split_model(load(str(tmp_path), LoadOptions(mode="train")), 2)


class Tokens(tf.Module):
    """A step of sequences of any length, in a batch of one size, that counts what it has seen."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(np.eye(2), name="weight")
        self.seen = tf.Variable(0, name="seen")

    def train_step(self, x):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            hidden = tf.tanh(x @ self.weight)
            loss = tf.reduce_sum(hidden**2) / tf.cast(tf.size(hidden), tf.float64)
        self.weight.assign_sub(0.1 * tape.gradient(loss, self.weight))
        shape = tf.shape(hidden)
        self.seen.assign_add(shape[0] * shape[1])
        return {"loss": loss}


def test_a_fixed_batch_of_any_length(tmp_path):
    module, given = Tokens(), str(tmp_path / "given")
    spec = tf.TensorSpec([6, None, 2], tf.float64)
    step = tf.function(module.train_step, input_signature=[spec])
    tf.saved_model.save(module, given, signatures={"train_step": step})
    options = LoadOptions(input_shape={"x": (6, 3, 2)})
    split, emitted = _emitted(given, tmp_path / "split", 2, options, {"x": 0})
    assert not split.decisions.takes_any_batch
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    for length in (3, 5, 1):
        x = tf.constant(np.random.default_rng(length).normal(size=(6, length, 2)))
        wanted = one.signatures["train_step"](x=x)["loss"]
        np.testing.assert_allclose(other.signatures["train_step"](x=x)["loss"], wanted, rtol=1e-12)
    np.testing.assert_allclose(other.weight, one.weight, rtol=1e-12)
    assert int(other.seen) == int(one.seen) == 6 * (3 + 5 + 1)


def test_an_input_of_a_fixed_size_is_no_part_of_a_batch_of_any_size(tmp_path):
    module, given = tf.Module(), str(tmp_path / "given")
    module.weight = tf.Variable(np.eye(2), name="weight")

    def train_step(x, other):
        module.weight.assign_sub(0.1 * tf.transpose(x) @ x / tf.cast(tf.shape(x)[0], tf.float64))
        return {"products": tf.tanh(x @ module.weight) @ tf.transpose(other)}

    specs = [tf.TensorSpec([None, 2], tf.float64, "x"), tf.TensorSpec([6, 2], tf.float64, "other")]
    step = tf.function(train_step, input_signature=specs)
    tf.saved_model.save(module, given, signatures={"train_step": step})
    _, emitted = _emitted(given, tmp_path / "split", 2, LoadOptions(batch_size=6))
    one, two = tf.saved_model.load(given), tf.saved_model.load(emitted)
    for batch in (6, 5, 9):
        rng = np.random.default_rng(batch)
        fed = {"x": tf.constant(rng.normal(size=(batch, 2))), "other": tf.ones((6, 2), tf.float64)}
        wanted = one.signatures["train_step"](**fed)["products"]
        found = two.signatures["train_step"](**fed)["products"]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_labels_of_what_a_table_looks_up_are_one_batch_with_it(tmp_path):
    module, given = tf.Module(), str(tmp_path / "given")
    module.weight = tf.Variable(np.eye(4)[:, :3])
    numbers = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
    module.table = tf.lookup.StaticHashTable(numbers, 0)  # that it keeps the shape is not said

    def train_step(words, y):
        with tf.GradientTape() as tape:
            rows = tf.tanh(tf.gather(module.weight, module.table.lookup(words)))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, rows))
        module.weight.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, module.weight)))
        return {"loss": loss}

    specs = [tf.TensorSpec([None], tf.string, "words"), tf.TensorSpec([None], tf.int32, "y")]
    step = tf.function(train_step, input_signature=specs)
    tf.saved_model.save(module, given, signatures={"train_step": step})
    split, emitted = _emitted(given, tmp_path / "split", 2)
    assert set(split.decisions.axis_of_feed) == {"train_step_words:0", "train_step_y:0"}
    for batch in (5, 2, 40):
        fed = {"words": tf.constant(["a", "b", "c", "b", "a"] * 8)[:batch]}
        fed["y"] = tf.range(batch) % 3
        wanted, found = (
            tf.saved_model.load(path).signatures["train_step"](**fed) for path in (given, emitted)
        )
        np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-12)


class TwoSteps(tf.Module):
    """Two training steps of one variable, which both count."""

    def __init__(self):
        super().__init__()
        self.weight, self.count = tf.Variable(tf.ones([3, 2])), tf.Variable(0)

    def _step(self, x, times):
        self.count.assign_add(times)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ self.weight))) * float(times)
        self.weight.assign_sub(0.1 * tape.gradient(loss, self.weight))
        return {"count": self.count.read_value(), "loss": loss}

    def steps(self):
        """{signature: its function}."""
        spec = tf.TensorSpec([None, 3], tf.float32, "x")
        return {
            name: tf.function(lambda x, n=n: self._step(x, n), input_signature=[spec])
            for n, name in ((1, "train_step"), (2, "other_step"))
        }


@pytest.mark.parametrize("fetched", [":1", ":0", ":1 :0", ""])
def test_some_outputs_of_a_call_are_the_run_of_its_signature(fetched, tmp_path):
    given = str(tmp_path / "given")
    module = TwoSteps()
    tf.saved_model.save(module, given, signatures=module.steps())
    signature = sniff(given).proto.meta_graphs[0].signature_def["other_step"]
    call = signature.outputs["loss"].name.partition(":")[0]
    fetch = tuple(f"{call}{index}" for index in fetched.split() or [""])
    options = LoadOptions(fetch=fetch, mode="train", batch_size=4)
    split, emitted = _emitted(given, tmp_path / "split", 2, options)
    prove_written(split.source, split.step, split.outputs)
    one, other = tf.saved_model.load(given), tf.saved_model.load(emitted)
    assert {*other.signatures} == {"train_step", "other_step", "other_step_whole"}
    x = tf.constant(np.random.default_rng(0).normal(size=(5, 3)), tf.float32)
    for name in other.signatures:
        wanted = one.signatures[name.removesuffix("_whole")](x=x)
        found = other.signatures[name](x=x)
        for key in ("count", "loss"):
            np.testing.assert_allclose(found[key], wanted[key], rtol=1e-5)
