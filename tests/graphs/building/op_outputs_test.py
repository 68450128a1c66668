"""What TensorFlow knows of an op's inputs and outputs, and what is said of an op that it lacks."""

import pytest
import tensorflow as tf

from graphs.building.op_outputs import argument_types, of_unknown_op, op_definition, output_dtype
from graphs.errors import ModelError


def test_types_of_lists_and_of_references():
    with tf.Graph().as_default() as graph:
        variable = tf.compat.v1.get_variable("v", [], use_resource=False)
        tf.raw_ops.SaveV2(
            prefix="p", tensor_names=["a"], shape_and_slices=[""], tensors=[variable], name="save"
        )
    nodes = {node.name: node for node in graph.as_graph_def().node}
    string, number = tf.string.as_datatype_enum, tf.float32.as_datatype_enum
    assert argument_types(nodes["save"], {}) == [string, string, string, number]
    assert argument_types(nodes["v"], {}, of_outputs=True) == [number + 100]
    assert output_dtype(nodes["v"], {}, 0) == number


def test_an_unknown_op_is_said_in_the_same_words_wherever_it_is_met():
    said = "this TensorFlow has no op 'NoSuch'; name the library that defines it by --op_library"
    with pytest.raises(ModelError, match=f"reading op 'a': {said}"):
        op_definition("NoSuch", "a")
    with pytest.raises(tf.errors.NotFoundError) as raised:
        tf.import_graph_def(tf.compat.v1.GraphDef(node=[{"name": "a", "op": "NoSuch"}]))
    assert of_unknown_op(str(raised.value)).startswith(said)
    assert of_unknown_op("it failed") == "it failed"
