"""Shapes and placeholders as protos."""

import pytest
import tensorflow as tf

from graphs.errors import ModelError
from graphs.protos import dtype_name, placeholder, shape_of, shape_proto


@pytest.mark.parametrize("shape", [None, (), (3,), (2, -1, 0)])
def test_a_shape_survives_and_means_the_same_to_tensorflow(shape):
    proto = shape_proto(shape)
    assert shape_of(proto) == shape
    sizes = None if shape is None else [None if size < 0 else size for size in shape]
    assert tf.TensorShape(proto).as_proto() == tf.TensorShape(sizes).as_proto()


def test_tensorflow_takes_a_placeholder():
    graph_def = tf.compat.v1.GraphDef(node=[placeholder("x", "bfloat16", (2, -1))])
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    tensor = graph.get_tensor_by_name("x:0")
    assert (tensor.dtype, tensor.shape.as_list()) == (tf.bfloat16, [2, None])


def test_dtypes():
    assert dtype_name(1, "x") == "float32"
    assert dtype_name(101, "x") == "float32"  # a reference to one
    with pytest.raises(ModelError, match="x has the unknown dtype 99"):
        dtype_name(99, "x")
