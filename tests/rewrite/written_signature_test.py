"""A MetaGraphDef's own signatures stay what they are, whatever its run is; the run gets a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite.emit import emit
from rewrite.model_builder import build_saved_model
from rewrite.pass_base import RewriteError
from rewrite.prove_structure import prove_structure
from rewrite.split.prove.written.check_unchanged import prove_others
from rewrite.verify import verify
from rewrite.written_signature import of_another_name, whole_name, written_name
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.write.emission_test import model_with, with_another_rate

v1 = tf.compat.v1
FEATURES = 3
BATCH = 6


def write(folder, is_called=False):
    """A .meta: signature train_step trains `weight` by another rate than the op `done`, train."""
    info = v1.saved_model.build_tensor_info
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, FEATURES), "x")
        start = np.eye(FEATURES, dtype=np.float32)
        weight = v1.get_variable("weight", initializer=start, use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ weight)), name="loss")
        slope = tf.gradients(loss, weight)[0]
        outputs = {}
        for name, rate in (("done", 0.1), ("own", 2.0)):
            step = tf.raw_ops.AssignSubVariableOp(resource=weight.handle, value=rate * slope)
            with tf.control_dependencies([step]):
                outputs[name] = tf.identity(loss, name)
        if is_called:
            made = tf.function(lambda x: tf.tanh(x @ tf.ones([FEATURES, 2]))).get_concrete_function(
                tf.TensorSpec([None, FEATURES], tf.float32)
            )
            outputs["called"] = made(x)
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        saver.save(session, str(folder / "model"), write_meta_graph=False)
        meta_graph = saver.export_meta_graph()
        signature = v1.saved_model.build_signature_def
        own = signature({"rows": info(x)}, {"mean": info(outputs["own"])}, "own")
        meta_graph.signature_def["train_step"].CopyFrom(own)
        score = signature({"rows": info(x)}, {"loss": info(loss)}, "score")
        meta_graph.signature_def["score"].CopyFrom(score)
        if is_called:
            call = signature({"rows": info(x)}, {"y": info(outputs["called"])}, "call")
            meta_graph.signature_def["serving_default"].CopyFrom(call)
    (folder / "model.meta").write_bytes(meta_graph.SerializeToString())
    return str(folder / "model.meta")


RUNS = {
    "another": (LoadOptions(fetch=("done:0",), batch_size=BATCH), "train_step_"),
    "its own": (LoadOptions(batch_size=BATCH), "train_step"),
    "of another name": (LoadOptions(signature="score", batch_size=BATCH), "serving_default"),
}


def emitted(source, folder):
    """What is written, proven by its structure."""
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    built = None
    if not source.saved_model_dir:
        (folder.parent / "build").mkdir()
        built = build_saved_model(source, folder.parent / "build")
    emit(source, {next(o for o in flat.origins if o.node): ""}, folder, {}, built)
    as_built = None if built is None else built.saved_model
    assert "signatures" in str(prove_structure(source, folder, as_built).compared)
    return str(folder)


def values(path, signature, feed):
    """What a signature's only output is, twice."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        found = v1.saved_model.load(session, ["serve"], path).signature_def[signature]
        [given], [taken] = found.inputs.values(), found.outputs.values()
        return [session.run(taken.name, {given.name: feed}) for _ in range(2)]


X = np.random.default_rng(0).normal(size=(BATCH, FEATURES)).astype(np.float32)


def trained(rate):
    """The losses of two steps, by numpy; the second after a descent."""
    weight, losses = np.eye(FEATURES), []
    for _ in range(2):
        y = np.tanh(X @ weight)
        losses.append(np.mean(y**2))
        weight = weight - rate * X.T @ (2 * y * (1 - y**2) / y.size)
    return losses


@pytest.mark.parametrize("kind", RUNS)
def test_own_signatures_are_written_as_they_came(kind, tmp_path):
    options, name = RUNS[kind]
    source = load(write(tmp_path), options)
    assert written_name(source) == name
    out = Path(emitted(source, tmp_path / "out"))
    own = source.meta_graph_def.signature_def
    written = sniff(out).proto.meta_graphs[0].signature_def
    assert {*written} == {*own, name}
    assert all(written[each] == own[each] for each in own)
    np.testing.assert_allclose(values(str(out), "train_step", X), trained(2.0), rtol=1e-5)
    if kind == "another":
        np.testing.assert_allclose(values(str(out), name, X), trained(0.1), rtol=1e-5)
        assert "train_step_" in of_another_name(source)[0]
    else:
        assert of_another_name(source) == ()


@pytest.mark.parametrize("kind", ["another", "its own"])
def test_the_runs_signature_is_compared_by_its_name_and_keys(kind, tmp_path):
    options, name = RUNS[kind]
    source = load(write(tmp_path), options)
    out = emitted(source, tmp_path / "out")
    verified = verify(source, out, {"x:0": X})
    assert verified.outputs_equal and verified.not_compared == ()
    [fetch] = source.fetches
    loaded = f"signature {name} (tf.saved_model.load): {fetch} of step 2"
    assert loaded in verified.compared


def test_a_signature_that_is_overwritten_is_found(tmp_path):
    source = load(write(tmp_path), RUNS["another"][0])
    out = emitted(source, tmp_path / "out")
    saved_model = sniff(out).proto
    signatures = saved_model.meta_graphs[0].signature_def
    signatures["train_step"].CopyFrom(signatures["train_step_"])
    (tmp_path / "out" / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    with pytest.raises(RewriteError, match="signature 'train_step'"):
        prove_structure(source, out, saved_model.SerializeToString())


@pytest.mark.parametrize("kind", ["another", "its own"])
def test_own_signatures_run_the_unsplit_step_of_a_split_graph(kind, tmp_path):
    options, name = RUNS[kind]
    split = split_model(load(write(tmp_path, kind == "another"), options), 2)
    prove_others(split.given, split.source)
    out = emitted(split.source, tmp_path / "out")
    assert written_name(split.source) == name
    whole = whole_name(split.given)
    written = sniff(out).proto.meta_graphs[0].signature_def
    assert {*written} == {*split.given.meta_graph_def.signature_def, name, whole}
    rate = {"another": 0.1, "its own": 2.0}[kind]
    for each in (name, whole):
        np.testing.assert_allclose(values(out, each, X), trained(rate), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"signature {whole}"):
        values(out, name, X[:1])
    np.testing.assert_allclose(values(out, "train_step", X), trained(2.0), rtol=1e-5)
    if kind == "another":
        values(out, "train_step", X[:1])  # it isn't split


def test_a_call_that_is_a_graphs_run_is_split_beside_itself(tmp_path):
    """The signature is found by its own name; nothing is looked up by TensorFlow 2's rules."""
    options = LoadOptions(signature="serving_default", batch_size=BATCH, mode="inference")
    split = split_model(load(write(tmp_path, True), options), 2)
    prove_others(split.given, split.source)
    out = emitted(split.source, tmp_path / "out")
    one, other = (values(out, f"serving_default{each}", X) for each in ("", "_whole"))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_no_signature_of_a_saved_model_is_taken_for_a_run_that_is_none(tmp_path):
    feeds = model_with(with_another_rate, str(tmp_path / "given"))
    source = load(str(tmp_path / "given"), LoadOptions(fetch=("Mean:0",), batch_size=BATCH))
    assert (feeds, whole_name(source)) == ({"rate": 2.0}, "")
    split = split_model(source, 2)
    prove_others(split.given, split.source)
    refusals = [n for n in split.step.graph_def.node if n.op == "Const" and "unsplit" in str(n)]
    assert refusals and not any("signature" in str(node) for node in refusals)
    out = emitted(split.source, tmp_path / "out")
    np.testing.assert_allclose(values(out, "train_step", X[:1]), values(
        str(tmp_path / "given"), "train_step", X[:1]), rtol=1e-6)  # fmt: skip
