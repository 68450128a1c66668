"""A list of tensors stays on its task: TensorFlow sends none to another, and waits for ever."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.loading.load_options import LoadOptions
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare

LISTS = ["EmptyTensorList", "TensorListPushBack", "TensorListStack"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two lists, each made, filled and read, and their sum."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], "x")
        shape = tf.constant([4])
        stacked = []
        for _ in range(2):
            held = tf.raw_ops.EmptyTensorList(
                element_shape=shape, max_num_elements=2, element_dtype=tf.float32
            )
            held = tf.raw_ops.TensorListPushBack(input_handle=held, tensor=tf.tanh(x))
            stacked.append(
                tf.raw_ops.TensorListStack(
                    input_handle=held, element_shape=shape, element_dtype=tf.float32
                )
            )
        tf.add_n(stacked, name="sum")
    path = tmp_path_factory.mktemp("lists") / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


@pytest.mark.parametrize(("cluster", "num_lists"), [("workers:2", 2), ("k80x2", 0)])
def test_what_hands_a_list_on_lies_together_where_there_are_several_tasks(
    model, cluster, num_lists
):
    load = LoadOptions(fetch=("sum",), mode="inference")
    problem = prepare(ProblemOptions(model, load, cluster=cluster), trace=False).problem
    types, group = np.array(problem.graph.op_types), problem.graph.colocation_group
    groups = {
        kind: sorted(each for each in group[types == kind].tolist() if each >= 0) for kind in LISTS
    }
    assert all(len(each) == num_lists for each in groups.values())
    assert len({tuple(each) for each in groups.values()}) == 1
    assert (group[types == "Tanh"] < 0).all()
