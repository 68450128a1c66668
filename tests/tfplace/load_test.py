"""tfplace.load of a model whose devices are not here."""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tfplace
from graphs.errors import ClusterError


def test_a_device_that_is_not_here_is_named_with_what_to_do(tmp_path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(1.0)
    tf.saved_model.save(module, str(tmp_path))
    file = tmp_path / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for node in model.meta_graphs[0].object_graph_def.nodes:
        if node.HasField("variable"):
            node.variable.device = "/job:worker/replica:0/task:1/device:CPU:0"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ClusterError, match=r"task:1.*doesn't see.*connect to the cluster first"):
        tfplace.load(str(tmp_path))
