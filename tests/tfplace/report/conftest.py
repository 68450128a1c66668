"""A training step of a few ops, prepared for two GPUs that are not here."""

import pytest
import tensorflow as tf

from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare


@pytest.fixture(scope="session")
def weight_pb(tmp_path_factory):
    """Path of a GraphDef: w [3, 2] is trained to make x [4, 3] times w smaller."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
        w = tf.compat.v1.get_variable("w", [3, 2], use_resource=True, trainable=True)
        with tf.device("/device:GPU:1"):
            y = tf.matmul(x, w, name="y")
        loss = tf.reduce_sum(y, name="loss")
        gradient = tf.gradients(loss, [w])[0]
        update = w.assign_sub(0.5 * gradient, read_value=False)
        with tf.control_dependencies([update]):
            tf.no_op(name="train_op")
    path = tmp_path_factory.mktemp("weight") / "weight.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


@pytest.fixture(scope="session")
def weight(weight_pb):
    return prepare(ProblemOptions(model=weight_pb, cluster="k80x2"), trace=False)
