"""What lists of tensors hold, in loops of tf.functions."""

import numpy as np
import tensorflow as tf

from graphs.building import shapes
from graphs.building.build import build_op_graph
from graphs.building.flatten import flatten
from graphs.source_model import TensorSpec

STEPS, ROWS, WIDTH = 6, 4, 8
ONE = ROWS * WIDTH * 4
HANDLE = shapes.HANDLE_BYTES


def _recurrent(x, weights):
    """All states h = tanh(x[t] w + h), as Keras' layers make them."""
    taken = tf.TensorArray(tf.float32, STEPS, element_shape=[ROWS, WIDTH]).unstack(x)
    states = tf.TensorArray(tf.float32, STEPS, element_shape=[ROWS, WIDTH])
    _, _, states = tf.while_loop(
        lambda t, *_: t < STEPS,
        lambda t, h, to: (
            t + 1,
            n := tf.tanh(tf.matmul(taken.read(t), weights) + h),
            to.write(t, n),
        ),
        (tf.constant(0), tf.zeros([ROWS, WIDTH]), states),
        maximum_iterations=STEPS,
    )
    return states.stack()


def _graph(step):
    """The op graph of a step that is fed x [STEPS, ROWS, WIDTH]."""
    spec = tf.TensorSpec([STEPS, ROWS, WIDTH], name="x")
    concrete = tf.function(step).get_concrete_function(spec)
    graph_def = concrete.graph.as_graph_def()
    feeds = [TensorSpec("x:0", "float32", (STEPS, ROWS, WIDTH))]
    flat = flatten(graph_def, feeds, [concrete.outputs[0].name])
    return build_op_graph(flat, shapes.infer_graph_def(flat.graph_def, feeds)).graph


def _lists(graph, kind):
    """[(bytes that it allocates, the op whose buffer it shares)] of outputs of ops of a type."""
    return [
        (
            int(graph.tensor_alloc_bytes[t]),
            graph.op_types[graph.tensor_producer[graph.tensor_shares[t]]]
            if graph.tensor_shares[t] >= 0
            else "",
        )
        for t in range(graph.num_tensors)
        if graph.op_types[graph.tensor_producer[t]] == kind and graph.tensor_output[t] >= 0
    ]


def test_a_loop_fills_the_list_that_it_writes_and_hands_on_the_one_that_it_reads():
    weights = tf.constant(np.eye(WIDTH, dtype=np.float32))
    graph = _graph(lambda x: tf.reduce_sum(_recurrent(x, weights)))
    assert _lists(graph, "TensorListFromTensor")[0] == (STEPS * ONE + HANDLE, "")
    made = _lists(graph, "StatelessWhile")
    lists = [each for each in made if each[0] > STEPS * ONE or each[1]]
    assert sorted(lists) == [(HANDLE, "TensorListFromTensor"), (STEPS * ONE + HANDLE, "")]


def test_what_a_gradient_needs_of_all_iterations_counts_once_whatever_lists_it_is_in():
    weights = tf.constant(np.eye(WIDTH, dtype=np.float32))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(_recurrent(x, weights) ** 2)
        return tape.gradient(loss, x)

    graph = _graph(step)
    # The states are in the list that is stacked, and in one for the gradient of tanh. What is read
    # of x is in x's list.
    filled = [each for each in _lists(graph, "StatelessWhile") if each[0] >= STEPS * ONE]
    assert filled == [(STEPS * ONE + HANDLE, "")]
    assert (HANDLE, "StatelessWhile") in _lists(graph, "StatelessWhile")


def test_a_list_of_zeros_is_never_the_list_that_it_is_like():
    def step(x):
        reserved = tf.raw_ops.TensorListReserve(
            element_shape=[ROWS, WIDTH], num_elements=STEPS, element_dtype=tf.float32
        )
        zeros = tf.raw_ops.ZerosLike(x=reserved)
        item = tf.raw_ops.TensorListGetItem(
            input_handle=zeros, index=0, element_shape=[ROWS, WIDTH], element_dtype=tf.float32
        )
        return tf.reduce_sum(x) + tf.reduce_sum(item)

    (zeros,) = _lists(_graph(step), "ZerosLike")
    assert zeros[1] == ""


def test_what_is_in_a_short_list_and_in_a_long_one_counts_in_the_long_one():
    """Keras keeps a layer's last state in a list of one; the gradient needs those of all steps."""
    weights = tf.Variable(np.eye(WIDTH, dtype=np.float32))

    def step(x):
        with tf.GradientTape() as tape:
            taken = tf.TensorArray(tf.float32, STEPS, element_shape=[ROWS, WIDTH]).unstack(x)
            last = tf.TensorArray(tf.float32, 1, element_shape=[ROWS, WIDTH])
            _, _, last = tf.while_loop(
                lambda t, *_: t < STEPS,
                lambda t, h, to: (
                    t + 1,
                    n := tf.tanh(tf.matmul(taken.read(t), weights) + h),
                    to.write(0, n),
                ),
                (tf.constant(0), tf.zeros([ROWS, WIDTH]), last),
                maximum_iterations=STEPS,
            )
            loss = tf.reduce_sum(last.stack() ** 2)
        return tape.gradient(loss, weights)

    lists = _lists(_graph(step), "While")
    assert lists.count((STEPS * ONE + HANDLE, "")) == lists.count((ONE + HANDLE, "")) == 1
    # What is read of x, for the gradient of the weights, is in x's list.
    assert lists.count((HANDLE, "TensorListFromTensor")) == 2
