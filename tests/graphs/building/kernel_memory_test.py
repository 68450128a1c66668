"""What kernels take beside their outputs, against what TensorFlow's kernels are seen to take.

The sizes in bytes are of the profiler's record of allocations of a worker (TensorFlow 2.21).
"""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.building.build import build_op_graph
from graphs.building.flatten import flatten
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _without_onednn(monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")


def _graph(make, shape):
    """The op graph of a step that is fed x and waits for what `make` returns."""
    with tf.Graph().as_default() as graph:
        done = make(v1.placeholder(tf.float32, shape, name="x"))
        v1.identity(done, "out") if isinstance(done, tf.Tensor) else v1.group(done, name="out")
    feeds = [TensorSpec("x:0", "float32", tuple(shape))]
    flat = flatten(graph.as_graph_def(), feeds, ["out:0" if isinstance(done, tf.Tensor) else "out"])
    return build_op_graph(flat, shapes.infer_graph_def(flat.graph_def, feeds)).graph


def _temporary(graph):
    """{op type: bytes that its op takes while it runs}."""
    return dict(zip(graph.op_types, graph.op_temp_bytes.tolist(), strict=True))


@pytest.mark.parametrize(
    ("images", "kernel", "of_filter", "of_input"),
    [
        # cifar10's second convolution, whatever the batch: 23 images of 144 patches.
        ((128, 12, 12, 64), (5, 5, 64, 64), 23 * 144 * 1600 * 4, 144 * 1600 * 4),
        ((2, 12, 12, 64), (5, 5, 64, 64), 23 * 144 * 1600 * 4, 144 * 1600 * 4),
        # Little work for each image: several at once, unless there is only one.
        ((8, 6, 6, 4), (3, 3, 4, 8), 4202 * 36 * 36 * 4, 4202 * 36 * 36 * 4),
        ((1, 6, 6, 4), (3, 3, 4, 8), 4202 * 36 * 36 * 4, 36 * 36 * 4),
    ],
)
def test_gradients_of_convolutions_unfold_as_many_images_as_fill_a_cache(
    images, kernel, of_filter, of_input
):
    def make(x):
        weights = tf.constant(np.ones(kernel, np.float32))
        y = tf.nn.conv2d(x, weights, 1, "SAME")
        return tf.group(tf.gradients(y, [x, weights]))

    found = _temporary(_graph(make, images))
    assert found["Conv2DBackpropFilter"] == of_filter
    assert found["Conv2DBackpropInput"] == of_input
    assert sum(found.values()) == of_filter + of_input


@pytest.mark.parametrize("batch", [1, 2])
def test_the_gradient_of_a_single_volume_unfolds_it(batch):
    def make(x):
        weights = tf.constant(np.ones((3, 3, 3, 4, 8), np.float32))
        y = tf.nn.conv3d(x, weights, [1] * 5, "SAME")
        return tf.group(tf.gradients(y, [x, weights]))

    found = _temporary(_graph(make, (batch, 8, 8, 8, 4)))
    assert found["Conv3DBackpropInputV2"] == (8**3 * 27 * 4 * 4 if batch == 1 else 0)
    assert found["Conv3DBackpropFilterV2"] == 0


def test_the_gradient_of_a_maximum_keeps_places_as_int64():
    def make(x):
        return tf.gradients(tf.nn.max_pool2d(x, 2, 2, "VALID"), x)[0]

    assert _temporary(_graph(make, (3, 8, 8, 5)))["MaxPoolGrad"] == 8 * 3 * 4 * 4 * 5


def test_a_variable_that_is_read_by_rows_is_copied_where_it_is_read_or_updated_whole():
    def make(x):
        size = [4, 4]
        rows, whole = (
            v1.get_variable(n, size, use_resource=True, initializer=v1.zeros_initializer())
            for n in ("rows", "whole")
        )
        row = tf.nn.embedding_lookup(rows, [1, 2])
        reads = [
            tf.raw_ops.ReadVariableOp(resource=tf.identity(v.handle), dtype=tf.float32, name=n)
            for v, n in ((rows, "copy"), (whole, "view"))
        ]
        total = tf.add_n([x, *reads]) + tf.reduce_sum(row)
        return [
            tf.raw_ops.ResourceApplyGradientDescent(
                var=v.handle, alpha=0.1, delta=total, name=f"update_{n}"
            )
            for v, n in ((rows, "rows"), (whole, "whole"))
        ]

    graph = _graph(make, (4, 4))
    of = {graph.op_names[op]: tensor for tensor, op in enumerate(graph.tensor_producer)}
    alloc = {name: int(graph.tensor_alloc_bytes[of[name]]) for name in ("copy", "view")}
    assert alloc == {"copy": 64, "view": 0}
    temporary = dict(zip(graph.op_names, graph.op_temp_bytes.tolist(), strict=True))
    assert {temporary["update_rows"], temporary["update_whole"]} == {64, 0}
    assert temporary["update_rows"] == 64
