"""Edges of an order change nothing for who runs something else, or a part of the step."""

import copy

import pytest
import tensorflow as tf

from graphs.loading.load_options import LoadOptions
from rewrite.order.order_edges import in_meta_graph
from tfplace.choosing.scheduling.model_order import bodies_of, may_be_waited_for
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A step of TensorFlow 1 that writes a moving mean, beside a signature that predicts."""
    path = tmp_path_factory.mktemp("models") / "given"
    builder = v1.saved_model.Builder(str(path))
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (4, 3), "x")
        y = v1.placeholder(tf.float32, (4, 2), "y")
        weight = v1.get_variable("weight", (3, 2), use_resource=True)
        mean = v1.get_variable("mean", (2,), use_resource=True)
        read = tf.raw_ops.ReadVariableOp(resource=weight.handle, dtype=tf.float32, name="read")
        logits = tf.matmul(x, read, name="logits")
        batch_mean = tf.reduce_mean(logits, 0, name="batch_mean")
        moved = mean.assign_sub(0.1 * batch_mean, read_value=False)
        with tf.control_dependencies([moved]):
            after = tf.tanh(mean.read_value(), name="after")
        squares = tf.square(logits - y, name="squares")
        tf.reduce_sum(squares, name="unused_of_both_feeds")
        tf.exp(batch_mean, name="unused_of_one_feed")
        loss = tf.reduce_mean(squares, name="loss")
        (gradient,) = tf.gradients(loss, [read])
        update = weight.assign_sub(0.1 * gradient, read_value=False)
        with tf.control_dependencies([update]):
            done = tf.identity(loss + tf.reduce_sum(after), name="done")
        signature = v1.saved_model.predict_signature_def
        session.run(v1.global_variables_initializer())
        signatures = {
            "train_step": signature({"x": x, "y": y}, {"loss": done}),
            "predict": signature({"x": x}, {"logits": logits}),
        }
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
    builder.save()
    options = ProblemOptions(str(path), LoadOptions(signature="train_step"), "k80x2")
    return prepare(options, trace=False)


def of_ops(prepared, values):
    return dict(zip(prepared.problem.graph.op_names, values.tolist(), strict=True))


def test_what_another_signature_runs_waits_for_nothing_more(prepared):
    body = of_ops(prepared, bodies_of(prepared))
    for name in ("logits", "read"):
        assert body[name] == -1, name
    for name in ("squares", "loss", "after", "AssignSubVariableOp"):
        assert body[name] >= 0, name


def test_what_an_unused_op_reads_that_needs_all_that_is_fed_may_have_edges(prepared):
    names = {node.name for node in prepared.source.graph_def.node}
    assert {"unused_of_both_feeds", "unused_of_one_feed"} <= names
    body = of_ops(prepared, bodies_of(prepared))
    assert body["squares"] >= 0 and body["batch_mean"] == -1


def test_nothing_waits_for_what_changes_a_variable(prepared):
    holds = of_ops(prepared, may_be_waited_for(prepared))
    assert holds["logits"] and holds["squares"] and holds["loss"]
    for name in ("AssignSubVariableOp", "AssignSubVariableOp_1", "after", "done"):
        assert not holds[name], name


def test_another_meta_graph_gets_no_edges(prepared):
    origin = dict(zip(prepared.problem.graph.op_names, prepared.flat.origins, strict=True))
    source, edges = prepared.source, [(origin["squares"], origin["loss"])]
    assert in_meta_graph(source, source.meta_graph_def, edges) == edges
    other = copy.deepcopy(source.meta_graph_def)
    other.meta_info_def.tags.append("train")
    assert in_meta_graph(source, other, edges) == []
